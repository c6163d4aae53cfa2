"""The command ``kstep-shim``.

Exit codes, decided here for all commands: 0 = as wanted; 1 = a check failed or something refused;
2 = wrong usage, that is an option, a file or directory, or a ``KSTEP_SHIM_*`` variable that cannot
be used. ``run`` exits as its command does, and to ``doctor`` a bad variable is a failed check.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kstep_shim import __version__
from kstep_shim.errors import KStepError
from kstep_shim.variables import MAX_FRAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    module = import_module(f"kstep_shim.commands.{arguments.command}")
    try:
        code = int(module.run(arguments))
        sys.stdout.flush()
        return code
    except KStepError as error:
        sys.stderr.write(f"kstep-shim {arguments.command}: {error}\n")
        return 2 if error.usage else 1
    except BrokenPipeError:
        # Who reads has seen enough (`| head`); Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="kstep-shim", description="Several Talker frames per engine step, exactly."
    )
    parser.add_argument("--version", action="version", version=f"kstep-shim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for add in _COMMANDS:
        add(commands)
    return parser


def _add_demo(commands: _Commands) -> None:
    demo = commands.add_parser(
        "demo", help="speak K frames per step on the soft NPU and compare with K=1"
    )
    demo.add_argument("-k", type=frames, default=8, help="frames per step (default 8)")
    demo.add_argument("--requests", type=positive, default=4, help="requests (default 4)")
    demo.add_argument("--frames", type=positive, default=64, help="cap per request (default 64)")
    demo.add_argument("--mode", choices=_MODES, default="eager", help="how the forward runs")
    demo.add_argument("--keep", metavar="DIR", help="keep what the two processes wrote in DIR")
    demo.add_argument("--compare", metavar="DIR", help="run nothing, compare what is in DIR")
    demo.add_argument("--json", action="store_true", help="print one JSON object")


def _add_bench(commands: _Commands) -> None:
    bench = commands.add_parser("bench", help="time per frame at K=1 and at every K, in one run")
    bench.add_argument(
        "--model", metavar="DIR", help="a Talker's configuration, on a GPU (default: the soft NPU)"
    )
    bench.add_argument("-k", type=frames, nargs="+", default=[2, 4, 8, 16], help="frames per step")
    bench.add_argument("--batches", type=positive, nargs="+", default=[1, 4, 8], help="streams")
    bench.add_argument("--frames", type=positive, default=240, help="per stream (default 240)")
    bench.add_argument("--rounds", type=positive, default=2, help="the last one counts (default 2)")
    bench.add_argument("--plot", metavar="FILE", help="draw it into FILE (needs matplotlib)")
    bench.add_argument("--json", action="store_true", help="print one JSON object")


def _add_doctor(commands: _Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check versions, patch points, environment and a deploy YAML; imports nothing",
    )
    doctor.add_argument("deploy", nargs="?", metavar="YAML", help="say what this would do")
    doctor.add_argument("--platform", default="npu", help="whose overrides count (default npu)")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")


def _add_status(commands: _Commands) -> None:
    status = commands.add_parser("status", help="what the processes of a deployment report")
    status.add_argument(
        "directory", nargs="?", metavar="DIR", help="default: KSTEP_SHIM_STATUS_DIR"
    )
    status.add_argument("--json", action="store_true", help="print one JSON object")


def _add_env(commands: _Commands) -> None:
    env = commands.add_parser("env", help="print the variables that switch the shim on")
    _add_settings(env)
    env.add_argument(
        "--bootstrap", action="store_true", help="also put the bootstrap on PYTHONPATH"
    )
    env.add_argument("--ray", action="store_true", help="also let vLLM copy them to Ray workers")
    env.add_argument("--json", action="store_true", help="print one JSON object")


def _add_run(commands: _Commands) -> None:
    run = commands.add_parser(
        "run", help="start a command with the shim on", usage="%(prog)s [-k K] -- COMMAND [ARG ...]"
    )
    _add_settings(run)
    run.add_argument("command_line", nargs="+", metavar="COMMAND", help="what to start")


def _add_rehearse(commands: _Commands) -> None:
    rehearse = commands.add_parser(
        "rehearse", help="bring a deploy YAML's stage 1 up in miniature and compare it with K=1"
    )
    rehearse.add_argument("deploy", metavar="YAML", help="the operator's own deploy YAML")
    rehearse.add_argument("-k", type=frames, help="frames per step; the YAML's own go first")
    rehearse.add_argument("--json", action="store_true", help="print one JSON object")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k", type=frames, help="frames per step (default: KSTEP_SHIM_FRAMES, or 8)"
    )
    parser.add_argument("--status-dir", metavar="DIR", help="where processes write their reports")
    parser.add_argument("--strict", action="store_true", help="make a refusal an error")


_COMMANDS = (
    _add_doctor,
    _add_status,
    _add_env,
    _add_run,
    _add_rehearse,
    _add_demo,
    _add_bench,
)
_MODES = ("eager", "piecewise", "full_decode_only")


def frames(text: str) -> int:
    """Argument type of K: 1 to 16."""
    value = positive(text)
    if value > MAX_FRAMES:
        raise argparse.ArgumentTypeError(f"{text}: expected at most {MAX_FRAMES} frames per step")
    return value


def positive(text: str) -> int:
    """Argument type: a whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number above 0")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
