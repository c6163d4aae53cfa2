"""The frames of every step inside the soft NPU's ``no_host`` block."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

_block = ExitStack()


def no_host_in_the_loop() -> None:
    """Forbid host traffic from a step's first frame until its last tail was issued."""
    import softnpu
    from kstep_shim.frames.device_tail import DeviceTail

    begin, finish = DeviceTail.begin, DeviceTail.finish

    def beginning(tail: DeviceTail, step: Any) -> None:
        begin(tail, step)
        _block.enter_context(softnpu.no_host())

    def finishing(tail: DeviceTail) -> Any:
        _block.close()
        return finish(tail)

    DeviceTail.begin = beginning
    DeviceTail.finish = finishing


def plant_a_read() -> None:
    """Read every frame's hidden rows on the host, inside the block."""
    from kstep_shim.frames.device_tail import DeviceTail

    _read_in_every_frame(DeviceTail)
    no_host_in_the_loop()


def no_reads_of_codec_head_frames() -> None:
    """Forbid host reads in every frame of a codec head whose ids stay on the device."""
    import softnpu
    from kstep_shim.frames.codec_head_blind import BlindFrames

    frame = BlindFrames.frame

    def watched(frames: BlindFrames, number: int, hidden: Any) -> Any:
        with softnpu.no_reads():
            return frame(frames, number, hidden)

    BlindFrames.frame = watched


def plant_a_read_of_codec_head_frames() -> None:
    """Read every frame's hidden rows on the host, inside the block."""
    from kstep_shim.frames.codec_head_blind import BlindFrames

    _read_in_every_frame(BlindFrames)
    no_reads_of_codec_head_frames()


def _read_in_every_frame(owner: Any) -> None:
    frame = owner.frame

    def reading(frames: Any, number: int, hidden: Any) -> Any:
        hidden.sum().item()
        return frame(frames, number, hidden)

    owner.frame = reading
