"""``kstep-shim bench``: progress while it works, then a table, JSON and a plot."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from kstep_shim.bench.results import plot, summary, table
from kstep_shim.bench.talker import BenchJob
from kstep_shim.demo.processes import run_module
from kstep_shim.demo.progress import frame_progress
from kstep_shim.demo.stage import ENVIRONMENT
from kstep_shim.errors import KStepError

if TYPE_CHECKING:
    import argparse

_SOFT = ("torch", "vllm", "vllm_ascend", "vllm_omni", "softnpu")
_GPU = ("torch", "vllm", "vllm_omni")


def run_bench(arguments: argparse.Namespace) -> int:
    """Measure K=1 and every K; 0 if all streams had the ids of K=1, 1 if not.

    Raises
    ------
    KStepError
        The serving stack is not installed, or a process failed.
    """
    needed = _SOFT if arguments.model is None else _GPU
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise KStepError(f"the bench needs {', '.join(missing)}, which this Python does not have")
    console = Console(stderr=arguments.json)
    facts = summary(_measure(arguments, console))
    if arguments.json:
        Console(soft_wrap=True).print_json(json.dumps(facts))
    else:
        console.print(table(facts))
    if arguments.plot is not None:
        plot(facts, Path(arguments.plot))
    return 0 if facts["identical"] else 1


def _measure(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    ks = [1, *(k for k in arguments.k if k > 1)]
    total = arguments.rounds * arguments.frames * sum(arguments.batches)
    environment = {"VLLM_LOGGING_LEVEL": "WARNING"} if arguments.model else ENVIRONMENT
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="kstep-bench-") as temporary,
        frame_progress(console) as progress,
    ):
        tasks = {k: progress.add_task(f"K={k}", total=total, start=False) for k in ks}
        for k in ks:
            job = BenchJob(
                frames_per_step=k,
                batches=tuple(arguments.batches),
                frames=arguments.frames,
                rounds=arguments.rounds,
                model=arguments.model,
            )
            files = [Path(temporary) / f"{k}.{kind}" for kind in ("job", "result", "log")]
            files[0].write_text(json.dumps(asdict(job)))
            progress.start_task(tasks[k])

            def advance(done: int, task: Any = tasks[k]) -> None:
                progress.update(task, completed=done)

            run_module(
                "kstep_shim.bench.child",
                files[:2],
                what=f"the K={k} process",
                log=files[2],
                progress=advance,
                environment=environment,
            )
            results.append(json.loads(files[1].read_text()))
    return results
