"""Duplex sessions: the generator outlives a unit, so a draw too many would be heard in the next."""

from __future__ import annotations

from functools import partial

import pytest
from support.duplex import UNIT, assert_same, converse
from support.stages import Stages


@pytest.mark.parametrize(
    ("frames", "sessions", "units"),
    [
        (4, 2, 6),
        pytest.param(13, 1, 20, marks=pytest.mark.long),
        pytest.param(16, 2, 20, marks=pytest.mark.long),
        pytest.param(8, 3, 60, marks=pytest.mark.long),
    ],
)
def test_field_report_18_units_back_to_back(
    stages: Stages, frames: int, sessions: int, units: int
) -> None:
    _assert_equal(stages, frames, sessions, units)


@pytest.mark.parametrize(
    "limit", [10, *(pytest.param(n, marks=pytest.mark.long) for n in (7, 9, 25))]
)
def test_a_unit_that_its_limit_ends_inside_a_step_leaves_the_next_one_alone(
    stages: Stages, limit: int
) -> None:
    _assert_equal(stages, 4, 1, 4, limit)


def test_a_unit_that_is_queued_early_is_sent_as_at_one_frame(stages: Stages) -> None:
    # With five frames a step the window's end and the unit's fall into one step.
    _assert_equal(stages, 5, 1, 4, early=True)


def _assert_equal(
    stages: Stages,
    frames: int,
    sessions: int,
    units: int,
    limit: int = UNIT,
    early: bool = False,
) -> None:
    jobs = [partial(converse, k, sessions, units, 3, limit, early) for k in (1, frames)]
    expected, actual = (stages.call(job, timeout=900.0) for job in jobs)
    assert_same(expected, actual, frames, units)
