"""The command ``kstep-shim``.

Exit codes: 0 = as wanted, 1 = a check failed, 2 = wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kstep_shim import __version__
from kstep_shim.errors import KStepError
from kstep_shim.settings import MAX_FRAMES

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KStepError as error:
        sys.stderr.write(f"kstep-shim: {error}\n")
        return 1


def build_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="kstep-shim", description="Several Talker frames per engine step, exactly."
    )
    parser.add_argument("--version", action="version", version=f"kstep-shim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_demo(commands)
    _add_status(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    demo.set_defaults(run=_demo)


def _add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = commands.add_parser("status", help="the state of every patch in this process")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    status.set_defaults(run=_status)


_MODES = ("eager", "piecewise", "full_decode_only")


def _demo(arguments: argparse.Namespace) -> int:
    from kstep_shim.demo.command import run_demo

    return run_demo(arguments)


def _status(arguments: argparse.Namespace) -> int:
    import json

    import kstep_shim

    report = kstep_shim.status()
    text = json.dumps(report.to_dict(), indent=2) if arguments.json else str(report)
    sys.stdout.write(text + "\n")
    return 0


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
