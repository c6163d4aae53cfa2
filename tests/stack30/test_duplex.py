"""Duplex sessions on the codec head: what a unit leaves behind would be heard in the next."""

from __future__ import annotations

from functools import partial

import pytest
from support.duplex import Session, assert_same
from support.duplex_codec_head import TURN_END_UNIT, UNIT, Talk, converse
from support.stages import Stages

from kstep_shim.demo.scenario import GraphMode


def compare(stages: Stages, frames: int, talk: Talk) -> dict[str, Session]:
    """Assert that every session equals one frame per step; returns those of K."""
    expected, actual = (stages.call(partial(converse, k, talk)) for k in (1, frames))
    assert_same(expected, actual, frames, talk.units)
    return actual


def _lengths(session: Session) -> list[int]:
    """Tokens of each unit."""
    ends = [unit[0] for unit in session.units]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def test_units_have_their_budget_and_the_last_of_a_turn_drains(stages: Stages) -> None:
    talk = Talk()
    sessions = compare(stages, 4, talk)
    for session in sessions.values():
        lengths = _lengths(session)
        inner = [n for index, n in enumerate(lengths) if index % talk.turn < talk.turn - 1]
        last = lengths[talk.turn - 1 :: talk.turn]
        # Behind the first unit of a turn an end is masked until the budget of 26 is spent.
        assert set(inner) == {UNIT}
        assert UNIT < max(last) <= TURN_END_UNIT


def test_an_end_is_masked_behind_each_25_frames_of_the_last_unit_of_a_turn(stages: Stages) -> None:
    talk = Talk(sessions=1, units=9, turn=1, end_bias=1.2)
    sessions = compare(stages, 4, talk)
    for length in _lengths(sessions["d0"]):
        # The end is the token after `frames` codes.
        frames = length - 1
        assert frames < 25 or frames % 25 >= 5 or length == TURN_END_UNIT
    assert max(_lengths(sessions["d0"])) > UNIT


def test_likely_ends_at_every_offset_of_a_step(stages: Stages) -> None:
    compare(stages, 4, Talk(end_bias=3.0))


@pytest.mark.parametrize("limit", [10])
def test_a_unit_that_its_limit_ends_inside_a_step_leaves_the_next_one_alone(
    stages: Stages, limit: int
) -> None:
    compare(stages, 4, Talk(units=6, limit=limit))


@pytest.mark.long
@pytest.mark.parametrize("frames", [2, 8, 16])
@pytest.mark.parametrize("mode", list(GraphMode), ids=lambda mode: mode.value)
def test_every_graph_mode(stages: Stages, mode: GraphMode, frames: int) -> None:
    compare(stages, frames, Talk(mode=mode, end_bias=1.2))


def test_a_unit_that_is_queued_early_is_sent_as_at_one_frame(stages: Stages) -> None:
    # With five frames a step the window's end and the unit's fall into one step.
    compare(stages, 5, Talk(sessions=1, early=True))
