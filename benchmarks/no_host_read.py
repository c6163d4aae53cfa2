"""Show that nothing between a step's first write and its last tail waits for the GPU.

CUDA's synchronisation check is on "error" from the end of the tail's ``begin`` to the start of its
``finish``. Streams of different lengths, so that requests join and finish. At the end a read is
planted there, and must be noticed.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from kstep_shim.bench.measure import serve
from kstep_shim.bench.talker import BenchJob, request, start
from kstep_shim.demo.stage import model_runner


def check_every_step(counted: list[int], planted: list[bool]) -> None:
    """Put the check around the frames of every step from now on."""
    import torch

    from kstep_shim.frames.device_tail import DeviceTail

    begin, frame, finish = DeviceTail.begin, DeviceTail.frame, DeviceTail.finish

    def checked_begin(tail: DeviceTail, step: Any) -> None:
        begin(tail, step)
        torch.cuda.set_sync_debug_mode("error")

    def checked_frame(tail: DeviceTail, number: int, hidden: torch.Tensor) -> torch.Tensor | None:
        if planted:
            hidden.sum().item()
        counted[0] += 1
        return frame(tail, number, hidden)

    def checked_finish(tail: DeviceTail) -> Any:
        torch.cuda.set_sync_debug_mode("default")
        return finish(tail)

    DeviceTail.begin = checked_begin  # type: ignore[method-assign]
    DeviceTail.frame = checked_frame  # type: ignore[method-assign]
    DeviceTail.finish = checked_finish  # type: ignore[method-assign]


def serve_staggered(engine: Any, count: int, frames: int) -> None:
    """Streams that begin two steps apart and end at different lengths."""
    width = int(model_runner(engine).get_model().config.hidden_size)
    waiting = [request(f"s{i}", i, frames + 7 * i, width) for i in range(count)]
    step = 0
    while waiting or engine.scheduler.has_requests():
        if waiting and step % 2 == 0:
            engine.add_request(waiting.pop(0))
        _, executed = engine.step_fn()
        engine.post_step(executed)
        step += 1


def main() -> int:
    """Serve under the check; 0 if nothing waited and the planted read was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("--frames", type=int, default=80)
    arguments = parser.parse_args()
    job = BenchJob(arguments.k, (1, 4, 8), arguments.frames, model=arguments.model)
    engine = start(job)
    serve(engine, 4, job)
    counted, planted = [0], list[bool]()
    check_every_step(counted, planted)
    for batch in job.batches:
        serve(engine, batch, job)
    serve_staggered(engine, 8, arguments.frames)
    print(f"{counted[0]} frames ran without a host read")
    planted.append(True)
    try:
        serve(engine, 4, job)
    except RuntimeError as error:
        print(f"a planted read is noticed: {error}")
        return 0
    print("a planted read was not noticed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
