"""Turning the step's stop rows into accepted tokens, directly.

The head is two columns wide, deterministic, and every draft is *continue*. Whatever sampling
parameters a client sends, rejection sampling then reduces to: take the larger column, and drop
what follows the first stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kstep_shim.frames.tokens import STOP_ROW_WIDTH

#: What vLLM's rejection sampler writes for a position without a token.
PLACEHOLDER_TOKEN_ID = -1


class InvalidStopRowError(RuntimeError):
    """A stop row said neither *continue* nor *stop*."""


class AcceptedFrames(NamedTuple):
    """Result of `accept_frames`.

    Attributes
    ----------
    token_ids : Tensor
        int32 ``[rows, max(widths)]``; -1 after the first stop, beyond a row's own width, and all
        through a row that is not valid.
    valid : Tensor
        bool ``[rows]``; false where any stop row of the request is NaN or has no finite maximum.
    """

    token_ids: Tensor
    valid: Tensor


def accept_frames(
    logits: Tensor,
    widths: Sequence[int],
    output_counts: Sequence[int] | None = None,
    min_outputs: Sequence[int] | None = None,
) -> AcceptedFrames:
    """Accept each request's frames up to and including its first stop.

    Parameters
    ----------
    logits : Tensor
        ``[sum(widths), 2]`` stop rows, request-major: continue is (0, -inf), stop is (-inf, 0).
    widths : sequence of int
        Positions of each request, at least 1: its draft count plus one.
    output_counts, min_outputs : sequence of int, optional
        Tokens that each request had produced before the step, and its minimum. A stop at position
        j counts only if ``output_counts[i] + j >= min_outputs[i]`` and is *continue* before
        that, which is what masking the stop id does to a single-frame step.

    Returns
    -------
    AcceptedFrames
        On the device of `logits`, not waited for. An invalid row has no tokens, so it cannot pass
        for a row of *continue*; check `valid` with `require_valid` after the step's own read.

    Raises
    ------
    ValueError
        Shapes and widths do not fit together.

    Examples
    --------
    >>> inf = float("inf")
    >>> rows = torch.tensor([[0.0, -inf], [-inf, 0.0], [-inf, 0.0]])
    >>> accept_frames(rows, [3]).token_ids.tolist()
    [[0, 1, -1]]
    """
    rows, widest = len(widths), max(widths, default=0)
    if logits.dim() != 2 or logits.shape[1] != STOP_ROW_WIDTH:
        raise ValueError(f"stop rows of shape {list(logits.shape)}, not [n, {STOP_ROW_WIDTH}]")
    if min(widths, default=1) < 1 or sum(widths) != logits.shape[0]:
        raise ValueError(f"{logits.shape[0]} stop rows for widths {list(widths)}")
    if rows == 0:
        return AcceptedFrames(
            logits.new_empty((0, 0), dtype=torch.int32), logits.new_empty((0,), dtype=torch.bool)
        )
    earliest = _earliest_stops(rows, output_counts, min_outputs)
    uniform = min(widths) == widest
    if uniform:
        table, padding = logits.unflatten(0, (rows, widest)), None
    else:
        table, padding = _pad(logits, widths, widest)

    # An argmax over NaN would answer 0 or 1 like any other row.
    best = table.amax(-1)
    bad = ~torch.isfinite(best)
    token_ids = (table[..., 1] > table[..., 0]).to(torch.int32)
    if any(earliest):
        first = torch.tensor(earliest, device=logits.device)[:, None]
        token_ids = token_ids * (torch.arange(widest, device=logits.device) >= first)
    drop = token_ids.cumsum(1) > token_ids
    if padding is not None:
        drop = drop | padding
    valid = ~bad.any(1)
    token_ids = token_ids.masked_fill(drop | ~valid[:, None], PLACEHOLDER_TOKEN_ID)
    return AcceptedFrames(token_ids.to(torch.int32), valid)


def _earliest_stops(
    rows: int, output_counts: Sequence[int] | None, min_outputs: Sequence[int] | None
) -> list[int]:
    """First position of each request at which a stop may count."""
    if output_counts is None and min_outputs is None:
        return [0] * rows
    if output_counts is None or min_outputs is None:
        raise ValueError("output counts and minimums go together")
    if len(output_counts) != rows or len(min_outputs) != rows:
        raise ValueError(
            f"{len(output_counts)} output counts and {len(min_outputs)} minimums for {rows} rows"
        )
    return [max(0, least - count) for count, least in zip(output_counts, min_outputs, strict=True)]


def _pad(logits: Tensor, widths: Sequence[int], widest: int) -> tuple[Tensor, Tensor]:
    """Spread rows of uneven widths over ``[rows, widest, 2]``, and mark the filling.

    A request is filled up with its own last row, so the filling is as valid as the request.
    """
    index, fill, start = [], [], 0
    for width in widths:
        last = start + width - 1
        index.append([min(start + position, last) for position in range(widest)])
        fill.append([position >= width for position in range(widest)])
        start += width
    table = logits[torch.tensor(index, device=logits.device)]
    return table, torch.tensor(fill, device=logits.device)


def require_valid(valid: Sequence[bool], request_ids: Sequence[str] | None = None) -> None:
    """Raise if a row was not valid; `valid` is on the host by now.

    Raises
    ------
    InvalidStopRowError
        Naming the requests, or their rows.
    """
    broken = [row for row, good in enumerate(valid) if not good]
    if broken:
        names = broken if request_ids is None else [request_ids[row] for row in broken]
        raise InvalidStopRowError(
            f"stop row neither continue nor stop (NaN or masked) for requests {names}"
        )
