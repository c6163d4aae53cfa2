"""The drafts that make the scheduler plan several frames for the whole batch, or for none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kstep_shim.frames.tokens import CONTINUE_TOKEN_ID


def constant_drafts(
    valid_sampled_token_ids: Any,
    frames: int,
    num_reqs: int,
    scheduled_draft_counts: list[int] | None = None,
    fold_short_rows: bool = False,
) -> list[list[int]]:
    """Draft *continue* ``frames - 1`` times for every request, or nothing for any of them.

    The loop runs one uniform span per step, so drafting is a decision about the batch. It folds
    (nobody drafts) when a row is missing or empty, when some requests were drafted in the step
    just run and others were not, and, if asked to, when a stop cut a row short.

    Parameters
    ----------
    valid_sampled_token_ids : list of list of int
        Ids that the step produced, one row per request in batch order. Anything but a list folds.
    frames : int
        Frames per step, K. Below 2 there is nothing to draft.
    num_reqs : int
        Requests in the batch; further rows are ignored.
    scheduled_draft_counts : list of int, optional
        Draft positions that the scheduler gave each request in that step. A row counts as short
        only against its own number, so a span that the scheduler itself shortened is whole. A
        one-token row of a draftless step is whole too: that is where the K-frame span starts or
        resumes. ``None`` assumes that every row was drafted in full.
    fold_short_rows : bool, default False
        Whether a short row folds the batch. Only the caller can tell a request that ran several
        frames and stopped inside the span from one whose drafts were scheduler padding.

    Returns
    -------
    list of list of int
        `num_reqs` lists, all ``[0] * (frames - 1)`` or all empty.

    Examples
    --------
    >>> constant_drafts([[0], [0]], frames=4, num_reqs=2, scheduled_draft_counts=[0, 0])
    [[0, 0, 0], [0, 0, 0]]
    >>> constant_drafts([[0, 0, 0, 0], [0]], 4, 2, scheduled_draft_counts=[3, 0])
    [[], []]
    """
    if frames < 2 or not _batch_may_draft(
        valid_sampled_token_ids, frames, num_reqs, scheduled_draft_counts, fold_short_rows
    ):
        return [[] for _ in range(num_reqs)]
    return [[CONTINUE_TOKEN_ID] * (frames - 1) for _ in range(num_reqs)]


def _batch_may_draft(
    rows: Any,
    frames: int,
    num_reqs: int,
    scheduled: Sequence[int] | None,
    fold_short_rows: bool,
) -> bool:
    if not isinstance(rows, list) or len(rows) < num_reqs:
        return False
    if not all(rows[:num_reqs]):
        return False
    counts = [frames - 1] * num_reqs if scheduled is None else list(scheduled[:num_reqs])
    if len(counts) < num_reqs:
        return False
    if len({count > 0 for count in counts}) > 1:
        return False
    return not fold_short_rows or all(
        len(row) >= count + 1 for row, count in zip(rows, counts, strict=False)
    )
