"""The vocoder stage receives what K=1 sends, for speech of every length and ending."""

from __future__ import annotations

from functools import partial

import pytest
from support.hand_over_cases import ENDINGS, Speech, one_name_twice, payload_lists
from support.stages import Stages

EVERY = [Speech(length, ending) for length in range(1, 111) for ending in ENDINGS]
LAGS = (0, 3)


@pytest.mark.parametrize("frames", [4, pytest.param(16, marks=pytest.mark.long)])
def test_one_speech_in_twenty(stages: Stages, frames: int) -> None:
    check(stages, frames, EVERY[frames::20])


@pytest.mark.long
@pytest.mark.parametrize("frames", [2, 3, 4, 5, 8, 13, 16])
def test_every_length_and_ending(stages: Stages, frames: int) -> None:
    check(stages, frames, EVERY)


def test_a_name_used_twice_is_sent_as_at_one_frame(stages: Stages) -> None:
    expected, actual = (stages.call(partial(one_name_twice, frames)) for frames in (1, 4))
    assert actual == expected


def check(stages: Stages, frames: int, speeches: list[Speech]) -> None:
    heard = sorted({speech.at(frames) for speech in speeches}, key=repr)
    expected = stages.call(partial(payload_lists, 1, heard, (0,)), timeout=900.0)
    actual = stages.call(partial(payload_lists, frames, speeches, LAGS), timeout=900.0)
    assert len(actual) == len(speeches) * len(LAGS)
    different = [
        (speech, lag)
        for (speech, lag), payloads in actual.items()
        if payloads != expected[speech.at(frames), 0]
    ]
    assert different == []
