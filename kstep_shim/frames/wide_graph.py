"""Whether a K-wide step has found the graph that a FULL mode promises."""

from __future__ import annotations

from typing import Any

from kstep_shim.counters import counters
from kstep_shim.frames.notices import process_notices


def note_missing_graph(runner: Any, forward_context: Any, rows: int, frames: int) -> None:
    """Count, and say once per row count, that frames run without the graph that was asked for.

    The frames are the same; each costs a launch of every kernel instead of one replay.

    Parameters
    ----------
    runner : Any
        Its ``compilation_config.cudagraph_mode`` is what the deployment asks for.
    forward_context : Any
        Its ``cudagraph_runtime_mode`` is what the step's forwards run with.
    rows, frames : int
        Requests and frames of the step.
    """
    mode = runner.compilation_config.cudagraph_mode
    full = mode.decode_mode()
    if full.name != "FULL" or forward_context.cudagraph_runtime_mode == full:
        return
    counters().increment("steps_without_graph")
    process_notices.notify(
        f"no graph for {rows} requests",
        f"no {mode.name} graph was captured for {rows} requests of {frames} frames, which run "
        f"slower without it: put {rows * frames} into cudagraph_capture_sizes",
    )
