"""Between two processes the vocoder stage receives what K=1 sends, whatever the receiver does."""

from __future__ import annotations

from functools import partial

import pytest
from support.deliveries import Delivered, Delivery, deliver, speak
from support.hand_over_cases import ENDINGS, Speech
from support.stages import Stages

from kstep_shim.demo.outcome import differences

EVERY = tuple(Speech(length, ending) for length in range(1, 111) for ending in ENDINGS)
KILLED = -9


@pytest.mark.parametrize("frames", [4])
def test_one_speech_in_twenty(stages: Stages, frames: int) -> None:
    check(stages, frames, EVERY[frames::20])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("frames", [2, 3, 4, 5, 8, 13, 16])
def test_every_length_and_ending(stages: Stages, frames: int) -> None:
    check(stages, frames, EVERY)


def check(stages: Stages, frames: int, speeches: tuple[Speech, ...]) -> None:
    """All speeches with the sender in time and late, and a few with a receiver in trouble."""
    few = EVERY[frames::20]
    dies, back = len(few) - 5, len(few) - 3
    deliveries = {
        "as it likes": Delivery(speeches, behind=None),
        "sender 3 steps behind": Delivery(speeches, behind=3),
        "slow receiver": Delivery(few, pace=0.02),
        "receiver dies": Delivery(few, dies_at=dies),
        "receiver comes back": Delivery(few, behind=None, dies_at=dies, back_at=back),
    }
    heard = {speech.at(frames) for speech in (*speeches, *few)}
    stock = [
        Delivery(tuple(sorted(heard, key=repr))),
        Delivery(tuple(speech.at(frames) for speech in few), dies_at=dies),
    ]
    (whole, without), kept = stages.call(partial(deliver, 1, stock), timeout=900.0)
    actual, left = stages.call(partial(deliver, frames, [*deliveries.values()]), timeout=900.0)
    assert kept == left == []
    assert whole.received == whole.sent
    expected = dict(zip(stock[0].speeches, whole.sent, strict=True))
    assert without.sent == [expected[speech.at(frames)] for speech in few]
    for (name, delivery), found in zip(deliveries.items(), actual, strict=True):
        lists = [expected[speech.at(frames)] for speech in delivery.speeches]
        assert found.sent == lists, name
        if name == "receiver dies":
            check_death(found)
        else:
            assert found.received == lists, name
    codes = [found.exit_codes for found in (without, *actual)]
    assert codes == [[KILLED], [0], [0], [0], [KILLED], [KILLED, 0]]


def check_death(found: Delivered) -> None:
    """Nothing but the beginning of what was sent arrived, and not all of it."""
    for arrived, sent in zip(found.received, found.sent, strict=True):
        assert arrived == sent[: len(arrived)]
    assert found.received != found.sent


@pytest.mark.long
@pytest.mark.parametrize(("frames", "behind"), [(4, None), (8, 3), (5, 0)])
def test_every_ending_of_the_talker(stages: Stages, frames: int, behind: int | None) -> None:
    expected, sent = stages.call(partial(speak, 1, frames, 0))
    actual, received = stages.call(partial(speak, frames, frames, behind))
    assert differences(expected, actual) == []
    assert received == sent
    assert set(received) >= {"drawn", "ceiling", "limit"}
    assert {name: (one.finish_reason, len(one.codes)) for name, one in actual.requests.items()} == {
        "leaves": ("abort", 1 + 3 * frames),
        "drawn": ("stop", 21),
        "ceiling": ("stop", 63),
        "limit": ("length", 29),
    }
