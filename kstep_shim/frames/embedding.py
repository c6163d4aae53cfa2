"""Feeding frame k-1's code back as the input of frame k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def require_buffers(
    inputs_embeds: Tensor | None, input_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the two persistent input buffers.

    Raises
    ------
    RuntimeError
        One is missing. Asked before the first frame, because a frame once sampled cannot be
        taken back.
    """
    if inputs_embeds is None or input_ids is None:
        missing = "inputs_embeds" if inputs_embeds is None else "input_ids"
        raise RuntimeError(f"multi-frame decode needs the persistent {missing} buffer of the step")
    return inputs_embeds, input_ids


def write_next_embedding(
    *,
    model: Any,
    info: Mapping[str, Any],
    input_ids: Tensor,
    id_row: int,
    inputs_embeds: Tensor,
    row: int,
) -> None:
    """Embed the request's latest code with the model's own ``preprocess``, into one buffer row.

    The copy is in place: a captured graph reads the buffer that it was captured with.

    Parameters
    ----------
    model : Any
        The Talker. Its decode ``preprocess`` embeds the code kept in `info`; the draft id that it
        is handed only gives the span its length of one.
    info : Mapping[str, Any]
        The request's live buffer.
    input_ids : Tensor
        ``[tokens]`` integer ids of the step.
    id_row : int
        The frame's position in `input_ids`.
    inputs_embeds : Tensor
        ``[tokens, hidden]`` persistent buffer.
    row : int
        The buffer row that the next forward reads for this request.
    """
    _, embeds, _ = model.preprocess(
        input_ids=input_ids[id_row : id_row + 1], input_embeds=None, **info
    )
    inputs_embeds[row : row + 1].copy_(embeds[:1])
