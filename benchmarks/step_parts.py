"""Median host time of each part of a K-frame step on a GPU; with ``--trace`` a trace of it, too."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from kstep_shim.bench.measure import serve
from kstep_shim.bench.talker import BenchJob, start
from kstep_shim.demo.stage import model_runner

RUNNER = (
    "execute_model",
    "sample_tokens",
    "_update_states",
    "_prepare_inputs",
    "_build_attention_metadata",
    "_preprocess",
    "_calc_spec_decode_metadata",
    "_build_model_kwargs_extra",
    "_model_forward",
    "_sample",
    "_bookkeeping_sync",
    "propose_draft_token_ids",
    "_build_omni_model_runner_output",
)
SCHEDULER = ("schedule", "update_from_output", "update_draft_token_ids")
TAIL = ("begin", "frame", "finish", "_draw", "_output")


def timed(owner: Any, name: str, into: dict[str, list[float]]) -> None:
    """Put a stop watch around a method of one object."""
    inner = getattr(owner, name, None)
    if inner is None:
        return

    def watched(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = inner(*args, **kwargs)
        into.setdefault(name, []).append(time.perf_counter() - begin)
        return result

    setattr(owner, name, watched)


def watch(engine: Any, batch: int, job: BenchJob) -> None:
    """Serve once with stop watches, and print what they say."""
    runner = model_runner(engine)
    times: dict[str, list[float]] = {}
    tail = vars(runner).get("_kstep_shim_tail")
    watched = [(runner, name) for name in RUNNER]
    watched += [(engine.scheduler, name) for name in SCHEDULER]
    if tail is not None:
        watched += [(tail, name) for name in TAIL] + [(tail._table, "read")]
    saved = [(owner, name, vars(owner).get(name)) for owner, name in watched]
    for owner, name in watched:
        timed(owner, name, times)
    facts = serve(engine, batch, job)
    for owner, name, before in saved:
        if before is None:
            vars(owner).pop(name, None)
        else:
            setattr(owner, name, before)
    print(f"batch {batch}: step {facts['step_ms']:.2f} ms")
    for name, seconds in times.items():
        print(f"  {name:32s} {1e3 * statistics.median(seconds):7.3f} ms  x {len(seconds)}")


def main() -> None:
    """Warm up, watch, and trace the last batch where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--trace", type=Path)
    arguments = parser.parse_args()
    batches = tuple(arguments.batches)
    job = BenchJob(arguments.k, batches, arguments.frames, model=arguments.model)
    engine = start(job)
    for batch in batches:
        serve(engine, batch, job)
        watch(engine, batch, job)
    if arguments.trace is not None:
        import torch

        with torch.profiler.profile() as trace:
            serve(engine, batches[-1], job)
        trace.export_chrome_trace(str(arguments.trace))


if __name__ == "__main__":
    main()
