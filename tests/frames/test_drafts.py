"""Everybody drafts, or nobody does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstep_shim.multi_frame import constant_drafts


def rows(*lengths: int) -> list[list[int]]:
    return [[0] * length for length in lengths]


@pytest.mark.parametrize(
    ("frames", "valid", "counts", "fold", "drafted"),
    [
        (6, rows(4, 5, 5, 5, 6), [5] * 5, True, False),
        (6, rows(4, 5, 5, 5, 6), [5] * 5, False, True),
        (6, rows(5, 6), [5, 5], True, False),
        (6, rows(1, 6), [0, 0], True, True),
        (6, rows(6, 0, 6), [5] * 3, True, False),
        (6, rows(6, 0, 6), [5] * 3, False, False),
        (6, rows(6, 6, 6), [5] * 3, True, True),
        (8, [[42], [43]], [0, 0], True, True),
        (8, [[7]], [0], True, True),
        (8, rows(8, 1), [7, 0], False, False),
        (8, rows(4, 4), [3, 3], True, True),
        (8, rows(8, 8), None, True, True),
        (8, rows(8, 3), None, True, False),
        (8, rows(8, 3), None, False, True),
        (8, rows(8), [7, 7], False, False),
        (8, rows(8, 8), [7], False, False),
        (1, rows(1, 1), [0, 0], False, False),
    ],
    ids=[
        "stop cut a row short",
        "short rows, folding off",
        "stop on the last draft",
        "draftless step resumes the span",
        "empty row",
        "empty row, folding off",
        "whole rows",
        "prefill results",
        "single prefill result",
        "some drafted, some not",
        "as wide as the scheduler made it",
        "old caller, whole rows",
        "old caller, short row",
        "old caller, short row, folding off",
        "a row is missing",
        "a count is missing",
        "one frame per step",
    ],
)
def test_cases(frames: int, valid: Any, counts: Any, fold: bool, drafted: bool) -> None:
    num_reqs = len(counts) if counts is not None and len(counts) > len(valid) else len(valid)
    expected = [[0] * (frames - 1) if drafted else [] for _ in range(num_reqs)]
    assert constant_drafts(valid, frames, num_reqs, counts, fold) == expected


@pytest.mark.parametrize("value", [None, (), "ids", 3])
def test_a_value_that_is_no_list_folds(value: Any) -> None:
    assert constant_drafts(value, 4, 2) == [[], []]


def test_rows_beyond_the_batch_are_ignored() -> None:
    assert constant_drafts(rows(4, 4, 0), 4, 2) == [[0, 0, 0]] * 2


def test_the_drafts_are_separate_lists() -> None:
    first, second = constant_drafts(rows(4, 4), 4, 2)
    assert first is not second


STEPS = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.lists(st.integers(0, 1), max_size=9),
            min_size=size,
            max_size=size,
        ),
        st.one_of(st.none(), st.lists(st.integers(0, 8), min_size=size, max_size=size)),
    )
)


@given(step=STEPS, frames=st.integers(1, 16), fold=st.booleans())
def test_all_or_none(step: Any, frames: int, fold: bool) -> None:
    valid, counts = step
    drafts = constant_drafts(valid, frames, len(valid), counts, fold)
    assert len(drafts) == len(valid)
    assert len({tuple(draft) for draft in drafts}) == 1
    assert drafts[0] in ([], [0] * (frames - 1))


@given(step=STEPS, frames=st.integers(2, 16))
def test_folding_short_rows_only_ever_removes_drafts(step: Any, frames: int) -> None:
    valid, counts = step
    folded = constant_drafts(valid, frames, len(valid), counts, True)
    assert folded in ([[]] * len(valid), constant_drafts(valid, frames, len(valid), counts))


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    frames=st.integers(2, 16),
    fold=st.booleans(),
)
def test_a_draftless_step_always_drafts(lengths: list[int], frames: int, fold: bool) -> None:
    # Folding here would schedule one token again, and again: the loop would never resume.
    drafts = constant_drafts(rows(*lengths), frames, len(lengths), [0] * len(lengths), fold)
    assert drafts == [[0] * (frames - 1)] * len(lengths)
