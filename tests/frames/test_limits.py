"""A request's own limit inside a step."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kstep_shim.frames.limits import (
    RowLimits,
    clamp_codec_limit,
    minimum_outputs,
    output_counts,
    remaining_outputs,
)


def request(produced: int, **params: Any) -> Any:
    return SimpleNamespace(
        output_token_ids=[0] * produced, sampling_params=SimpleNamespace(**params)
    )


BATCH = SimpleNamespace(req_ids=["a", "b", "c", "gone"])
REQUESTS = {
    "a": request(4, max_tokens=7, min_tokens=5, all_stop_token_ids={1, 9}),
    "b": request(0, max_tokens=None, min_tokens=5, all_stop_token_ids={9}),
    "c": SimpleNamespace(output_token_ids=[0], sampling_params=None),
}


def test_remaining_counts_and_minimums_are_read_per_request_in_batch_order() -> None:
    assert remaining_outputs(BATCH, REQUESTS) == [3, None, None, None]
    assert output_counts(BATCH, REQUESTS) == [4, 0, 1, 0]
    assert minimum_outputs(BATCH, REQUESTS) == [5, 0, 0, 0]


def test_a_later_segment_does_not_move_the_limit_that_the_engine_fixed() -> None:
    session = request(2, max_tokens=7)
    batch = SimpleNamespace(req_ids=["s"])
    assert remaining_outputs(batch, {"s": session}) == [5]
    session.sampling_params = SimpleNamespace(max_tokens=3)
    session.output_token_ids.clear()
    assert remaining_outputs(batch, {"s": session}) == [7]


@pytest.mark.parametrize(
    ("state", "remaining", "ceiling"),
    [
        ({"step": 4, "max_tokens": 64}, 3, 8),
        ({"step": 4, "max_tokens": 6}, 3, 6),
        ({"step": 4, "max_tokens": 64}, None, 64),
        ({"max_tokens": 64}, 3, 4),
        ({"step": 4, "max_tokens": 64}, 0, 5),
    ],
    ids=["lowers", "never raises", "no limit", "no step yet", "nothing left"],
)
def test_clamp(state: dict[str, Any], remaining: int | None, ceiling: int) -> None:
    clamp_codec_limit(state, remaining)
    assert state["max_tokens"] == ceiling


def test_clamp_leaves_a_state_without_a_ceiling_alone() -> None:
    state: dict[str, Any] = {"step": 1}
    clamp_codec_limit(state, 3)
    assert state == {"step": 1}


def test_rows_are_spent_from_their_own_limit_on() -> None:
    limits = RowLimits([{}, {}, {}], {"request_max_tokens_remaining": [2, None, 4]})
    assert [limits.spent(frame) for frame in range(5)] == [[], [], [0], [0], [0, 2]]


def test_the_first_frame_always_runs() -> None:
    assert RowLimits([{}], {"request_max_tokens_remaining": [0]}).spent(0) == []


def test_without_limits_no_row_is_spent() -> None:
    assert RowLimits([{}, {}], {}).spent(15) == []


def test_limits_must_match_the_requests() -> None:
    with pytest.raises(RuntimeError, match="1 output limits for 2"):
        RowLimits([{}, {}], {"request_max_tokens_remaining": [2]})


def test_the_ceiling_is_lowered_for_the_call_only() -> None:
    states = [{"step": 5, "max_tokens": 64}, {"step": 5, "max_tokens": 64}]
    infos = [{"audio_state": states[0]}, {"audio_state": states[1]}, {}, None]
    limits = RowLimits(infos, {"request_max_tokens_remaining": [2, None, 2, 2]})
    with limits.clamped(0):
        assert [state["max_tokens"] for state in states] == [8, 64]
    assert [state["max_tokens"] for state in states] == [64, 64]
    states[0]["step"] += 1
    with suppress(ZeroDivisionError), limits.clamped(1):
        assert states[0]["max_tokens"] == 8
        raise ZeroDivisionError
    assert states[0]["max_tokens"] == 64


def test_the_clamp_stops_a_model_that_ignores_eligibility() -> None:
    # Such a model draws once too often, but reaches its ceiling there and emits nothing.
    state = {"step": 5, "max_tokens": 64}
    limits = RowLimits([{"audio_state": state}], {"request_max_tokens_remaining": [2]})
    ended = []
    for frame in range(3):
        with limits.clamped(frame):
            state["step"] += 1
            ended.append(state["step"] >= state["max_tokens"])
    assert ended == [False, False, True]
