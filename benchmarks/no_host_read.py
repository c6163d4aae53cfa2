"""Show that nothing between a step's first write and its last tail waits for the GPU.

Runs `talker_steps.py` with CUDA's synchronisation check set to "error" from the end of the tail's
``begin`` to the start of its ``finish``; with ``PLANT=1`` a read is planted there, and the run must
fail.
"""

from __future__ import annotations

import os
from typing import Any

import talker_steps
import torch

from kstep_shim.frames.device_tail import DeviceTail

begin, frame, finish = DeviceTail.begin, DeviceTail.frame, DeviceTail.finish
CHECKED = [0]


def checked_begin(tail: DeviceTail, step: Any) -> None:
    """Start to check."""
    begin(tail, step)
    torch.cuda.set_sync_debug_mode("error")


def checked_frame(tail: DeviceTail, number: int, hidden: torch.Tensor) -> torch.Tensor | None:
    """Count, and plant a read where asked to."""
    embeds = frame(tail, number, hidden)
    if os.environ.get("PLANT"):
        hidden.sum().item()
    CHECKED[0] += 1
    return embeds


def checked_finish(tail: DeviceTail) -> Any:
    """Stop checking: here comes the step's one read."""
    torch.cuda.set_sync_debug_mode("default")
    return finish(tail)


DeviceTail.begin = checked_begin  # type: ignore[method-assign]
DeviceTail.frame = checked_frame  # type: ignore[method-assign]
DeviceTail.finish = checked_finish  # type: ignore[method-assign]

run = talker_steps.run


def counted_run(arguments: Any) -> None:
    """Run one K and say how many frames were checked."""
    run(arguments)
    print(f"K={arguments.k}: {CHECKED[0]} frames ran without a host read", flush=True)


talker_steps.run = counted_run
if __name__ == "__main__":
    talker_steps.main()
