"""``kstep-shim demo``: progress while it works, then one table that a person reads at a glance."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from kstep_shim.demo.compare import BASELINE, SHIMMED, Comparison, compare_files, run_both
from kstep_shim.demo.progress import frame_progress
from kstep_shim.demo.scenario import GraphMode, StageShape, staggered
from kstep_shim.errors import KStepError

if TYPE_CHECKING:
    import argparse

_NEEDED = ("torch", "vllm", "vllm_ascend", "vllm_omni", "softnpu")


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 if both processes spoke exactly the same, 1 if not.

    Raises
    ------
    KStepError
        The serving stack or the soft NPU is not installed, or a process failed.
    """
    console = Console(stderr=arguments.json)
    if arguments.compare is not None:
        comparison = compare_files(Path(arguments.compare), arguments.k)
    else:
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise KStepError(
                f"the demo needs {', '.join(missing)}, which this Python does not have: "
                "in a checkout, `make demo` installs everything"
            )
        comparison = _run(arguments, console)
    if arguments.json:
        Console(soft_wrap=True).print_json(json.dumps(comparison.summary()))
    else:
        console.print(table(comparison))
        for difference in comparison.differences:
            console.print(f"[red]different[/red]: {difference}", markup=True)
    return 1 if comparison.differences else 0


def _run(arguments: argparse.Namespace, console: Console) -> Comparison:
    scenario = staggered(arguments.requests, frames=arguments.frames)
    mode = GraphMode(arguments.mode)
    rows = max(1, arguments.requests)
    common = {"mode": mode, "max_num_seqs": rows}
    total = arguments.requests * arguments.frames
    with frame_progress(console) as progress:
        tasks = {
            BASELINE: progress.add_task("K=1, no shim", total=total),
            SHIMMED: progress.add_task(f"K={arguments.k}, kstep_shim", total=total),
        }
        return run_both(
            StageShape(frames=1, **common),
            StageShape(frames=arguments.k, shim=True, **common),
            scenario,
            lambda name, done: progress.update(tasks[name], completed=done),
            None if arguments.keep is None else Path(arguments.keep),
        )


def table(comparison: Comparison) -> Table:
    """The result, for people."""
    facts = comparison.summary()
    before, after = facts["host_ms_per_frame_baseline"], facts["host_ms_per_frame"]
    result = Table(
        title="MiniCPM-o 4.5 Talker in miniature, soft NPU",
        title_justify="left",
        caption="Times include the device's work, which the soft NPU does on the host row by row.",
        caption_justify="left",
    )
    result.add_column("")
    result.add_column("K=1, stock", justify="right")
    result.add_column(f"K={facts['k']}, kstep_shim", justify="right")
    frames = str(facts["frames"])
    result.add_row("frames", frames, str(comparison.shimmed.frames))
    result.add_row("engine steps", str(facts["steps_baseline"]), str(facts["steps"]))
    result.add_row("host time per frame", "1.00", f"{after / before:.2f}" if before else "n/a")
    engaged = f"{facts['steps_engaged']} of {comparison.shimmed.decode_steps} decode steps"
    result.add_row("K frames ran in", "", engaged)
    for reason, count in facts["declined"].items():
        result.add_row("one frame because", "", f"{reason}: {count}")
    verdict = "[green]yes[/green]" if facts["identical"] else "[red]NO[/red]"
    result.add_row("identical", "", verdict)
    return result
