"""Median host time of each part of a step, for `talker_steps.py` run with the same arguments.

With ``TRACE=FILE`` the steps of the last batch are traced, too.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import talker_steps
import torch

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
TRACE = os.environ.get("TRACE")


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


def serve(core: Any, batch: int, arguments: Any) -> dict[str, Any]:
    """Serve once to warm up and once with stop watches."""
    plain(core, batch, arguments)
    runner = core.model_executor.driver_worker.worker.model_runner
    times: dict[str, list[float]] = {}
    tail = vars(runner).get("_kstep_shim_tail")
    watched = [(runner, name) for name in RUNNER]
    watched += [(core.scheduler, name) for name in SCHEDULER]
    if tail is not None:
        watched += [(tail, name) for name in TAIL] + [(tail._table, "read")]
    saved = [(owner, name, vars(owner).get(name)) for owner, name in watched]
    for owner, name in watched:
        timed(owner, name, times)
    result = plain(core, batch, arguments)
    for owner, name, before in saved:
        if before is None:
            vars(owner).pop(name, None)
        else:
            setattr(owner, name, before)
    print(f"batch {batch}: step {result['step_ms_median']:.2f} ms")
    for name, seconds in times.items():
        print(f"  {name:32s} {1e3 * statistics.median(seconds):7.3f} ms  x {len(seconds)}")
    if TRACE and batch == int(arguments.batches.rpartition(",")[2]):
        with torch.profiler.profile() as trace:
            plain(core, batch, arguments)
        trace.export_chrome_trace(TRACE)
    return result


plain = talker_steps.serve
talker_steps.serve = serve
if __name__ == "__main__":
    talker_steps.main()
