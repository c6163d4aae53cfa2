"""Turning the step's stop rows into accepted tokens, directly.

The head is two columns wide, deterministic, and every draft is *continue*. Whatever sampling
parameters a client sends, rejection sampling then reduces to: take the larger column, and drop
what follows the first stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
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
        Read here, where they are not on the host already.
    widths : sequence of int
        Positions of each request, at least 1: its draft count plus one.
    output_counts, min_outputs : sequence of int, optional
        Tokens that each request had produced before the step, and its minimum. A stop at position
        j counts only if ``output_counts[i] + j >= min_outputs[i]`` and is *continue* before
        that, which is what masking the stop id does to a single-frame step.

    Returns
    -------
    AcceptedFrames
        On the host. An invalid row has no tokens, so it cannot pass for a row of *continue*;
        check `valid` with `require_valid`.

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
            torch.empty((0, 0), dtype=torch.int32), torch.empty(0, dtype=torch.bool)
        )
    # A dozen operations on so few numbers take much longer as tensors.
    stop_rows = logits.to("cpu", torch.float32).numpy()
    earliest = np.array(_earliest_stops(rows, output_counts, min_outputs))[:, None]
    positions, width = np.arange(widest), np.array(widths)[:, None]
    # A request is filled up with its own last row, so the filling is as valid as the request.
    last = np.cumsum(width)[:, None] - 1
    table = stop_rows[np.minimum(last - width + 1 + positions, last)]

    # An argmax over NaN would answer 0 or 1 like any other row.
    valid = np.isfinite(table.max(-1)).all(1)
    stops = (table[..., 1] > table[..., 0]) & (positions >= earliest)
    kept = (positions < width) & (np.cumsum(stops, axis=1) <= stops) & valid[:, None]
    token_ids = np.where(kept, stops, PLACEHOLDER_TOKEN_ID).astype(np.int32)
    return AcceptedFrames(torch.from_numpy(token_ids), torch.from_numpy(valid))


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
