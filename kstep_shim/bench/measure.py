"""Timing a stage: streams spoken at once, step by step, and the device's share of a frame."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from kstep_shim.bench.talker import BenchJob, request
from kstep_shim.demo.stage import model_runner

#: Frames of the first window that the vocoder gets.
FIRST_WINDOW = 25
_REPLAYS = 100


def serve(
    engine: Any, batch: int, job: BenchJob, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Speak `batch` streams at once.

    Times are of the steps in which all of them decode, the first quarter left out, in
    milliseconds; ``codes`` has every stream's ids.
    """
    names = [f"b{batch}-{index}" for index in range(batch)]
    codes: dict[str, list[int]] = {name: [] for name in names}
    first: dict[str, float] = {}
    width = int(model_runner(engine).get_model().config.hidden_size)
    for index, name in enumerate(names):
        engine.add_request(request(name, index, job.frames, width))
    started = time.perf_counter()
    steps: list[tuple[float, int]] = []
    while engine.scheduler.has_requests():
        begin = time.perf_counter()
        outputs, executed = engine.step_fn()
        engine.post_step(executed)
        seconds = time.perf_counter() - begin
        counts = []
        for output in [one for some in (outputs or {}).values() for one in some.outputs]:
            delta = (output.multimodal_output or {}).get("codes.audio")
            if delta is not None and output.request_id in codes:
                codes[output.request_id] += delta.flatten().tolist()
                if len(codes[output.request_id]) >= FIRST_WINDOW:
                    first.setdefault(output.request_id, time.perf_counter() - started)
            counts.append(len(output.new_token_ids))
        if len(counts) == batch and min(counts) == max(counts) > 0:
            steps.append((seconds, counts[0]))
        if progress is not None:
            progress(sum(map(len, codes.values())))
    return {**_times(steps), "first_window_ms": 1e3 * max(first.values(), default=0.0),
            "codes": codes}  # fmt: skip


def _times(steps: list[tuple[float, int]]) -> dict[str, float]:
    steady = steps[len(steps) // 4 :]
    widest = max((count for _, count in steady), default=0)
    whole = [seconds for seconds, count in steady if count == widest]
    if not whole:
        return {"ms_per_frame": 0.0, "step_ms": 0.0, "step_ms_max": 0.0}
    frames = sum(count for _, count in steady)
    return {
        "ms_per_frame": 1e3 * sum(seconds for seconds, _ in steady) / frames,
        "step_ms": 1e3 * statistics.median(whole),
        "step_ms_max": 1e3 * max(whole),
    }


def device_times(engine: Any, batch: int, frames: int) -> dict[str, float]:
    """Milliseconds of a GPU for each captured part of a frame, each replayed on its own.

    Keys: ``one query`` and ``K queries`` for the forward, ``look_ahead``, ``sample`` and
    ``settle`` for the tail. Empty where there are no CUDA graphs for `batch` requests.
    """
    import torch

    if not torch.cuda.is_available():
        return {}
    with torch.inference_mode():
        parts, before = _captured(model_runner(engine), batch, frames)
        return {name: _replay_ms(name, graph, frames, before) for name, graph in parts.items()}


def _captured(runner: Any, batch: int, frames: int) -> tuple[dict[str, Any], Callable[[], None]]:
    entries = getattr(runner.model, "concrete_cudagraph_entries", {})
    names = {batch * frames: "K queries", batch: "one query"}
    parts = {
        names[descriptor.num_tokens]: entry.cudagraph
        for descriptor, entry in entries.items()
        if descriptor.uniform and descriptor.num_reqs == batch and descriptor.num_tokens in names
    }
    tail = getattr(runner, "_kstep_shim_tail", None)
    kernel = getattr(tail, "kernel", None)
    graphs = None if kernel is None else kernel.graphs(batch)
    if kernel is None or graphs is None:
        return parts, lambda: None
    return {**parts, **graphs._asdict()}, kernel.rewind


def _replay_ms(name: str, graph: Any, frames: int, before: Callable[[], None]) -> float:
    import torch

    # The books count frames, and have room for those of one step.
    count = frames if name == "settle" else _REPLAYS
    before()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count
