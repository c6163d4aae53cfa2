"""Joining the outputs of K frames into the one output that the rest of the step expects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def merge_frame_outputs(
    outputs: Sequence[Any], stop_rows: Sequence[Tensor], store: Callable[[Tensor], None]
) -> Any:
    """Join per-frame outputs, and hand the joined stop rows to `store`.

    Parameters
    ----------
    outputs : sequence of OmniOutput
        One per frame, in frame order. ``multimodal_outputs`` holds ``codes.audio`` and
        ``meta.finished``, lists with one tensor per request in batch order.
    stop_rows : sequence of Tensor
        One ``[rows, 2]`` tensor per frame.
    store : callable
        Receives ``[rows * K, 2]``, request-major and frame-minor, the order in which the runner's
        ``logits_indices`` enumerates the step. For one frame: the tensor itself.

    Returns
    -------
    OmniOutput
        The last frame's output with each request's code deltas joined on dim 0 and its finished
        flags OR-ed; every other field is the last frame's. For one frame: that very object.

    Raises
    ------
    RuntimeError
        No outputs, or not one tensor of stop rows per output.
    """
    if not outputs:
        raise RuntimeError("no frame outputs to merge")
    if len(outputs) != len(stop_rows):
        raise RuntimeError(f"{len(stop_rows)} stop rows for {len(outputs)} frame outputs")
    if len(outputs) == 1:
        store(stop_rows[0])
        return outputs[0]
    store(join_stop_rows(stop_rows))
    frames = [output.multimodal_outputs for output in outputs]
    last = frames[-1]
    codes = [torch.cat(deltas, 0) for deltas in _by_request(frames, "codes", "audio")]
    finished = [any_finished(flags) for flags in _by_request(frames, "meta", "finished")]
    return outputs[-1]._replace(
        multimodal_outputs={
            **last,
            "codes": {**last["codes"], "audio": codes},
            "meta": {**last["meta"], "finished": finished},
        }
    )


def join_stop_rows(stop_rows: Sequence[Tensor]) -> Tensor:
    """Stack K tensors ``[rows, 2]`` into ``[rows * K, 2]``, each request's frames together."""
    return torch.stack(tuple(stop_rows), dim=1).flatten(0, 1)


def any_finished(flags: Sequence[Tensor]) -> Tensor:
    """OR of one request's finished flags, without waiting for the device.

    Frames after the terminating one report false, so the last flag alone would lose the end.
    Flags on the host are read; flags on a device are combined there into a 0-d tensor.
    """
    on_device = []
    for flag in flags:
        if flag.device.type != "cpu":
            on_device.append(flag.reshape(()))
        elif bool(flag):
            return flag
    if on_device:
        return torch.stack(on_device).any()
    return flags[-1]


def _by_request(frames: Sequence[Any], group: str, key: str) -> list[tuple[Tensor, ...]]:
    return list(zip(*(frame[group][key] for frame in frames), strict=True))
