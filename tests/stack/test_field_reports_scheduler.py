"""Failures from the field on the real scheduler, with results that no healthy worker returns."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support import report_benches
from support.scheduler_cases import DRAFTS, FRAMES
from support.stages import Stages


@pytest.fixture(scope="module")
def seen(stages: Stages) -> dict[str, Any]:
    return stages.call(report_benches.run_all)


@pytest.mark.parametrize("case", ["one_empty_row", "four_empty_rows"])
def test_field_report_01_no_negative_span(seen: dict[str, Any], case: str) -> None:
    found = seen[case]
    assert all(width == FRAMES for widths in found["widths"] for width in widths.values())
    assert set(found["behind"].values()) == {1}
    lost = {"b"} if case == "one_empty_row" else set("abcd")
    whole = 1 + 7 * FRAMES
    assert found["tokens"] == {n: whole - FRAMES * (n in lost) for n in "abcd"}


def test_field_report_02_a_late_result_of_a_preempted_request(seen: dict[str, Any]) -> None:
    found = seen["late_result_of_a_preempted_request"]
    assert {name: end[0] for name, end in found["ends"].items()} == {
        "a": "error",
        "b": "error",
        "c": "error",
    }
    for _, reason, tokens in found["ends"].values():
        assert reason.startswith("preempted: the KV cache")
        assert tokens == []
    assert found["placeholders"] == [0, 0, 0]
    assert found["held"] == []
    assert found["next"] == [{"later": 5}, {"later": FRAMES}]
    assert found["behind"] == {"later": 1}


def test_field_report_02_a_prompt_may_start_again(seen: dict[str, Any]) -> None:
    found = seen["a_prompt_preempted_before_it_spoke"]
    assert found["widths"] == [{"a": 64}, {"a": 58}, {"a": FRAMES}]
    assert found["behind"] == {"a": 1}


def test_field_report_02_filler_of_a_missed_round_is_no_draft(seen: dict[str, Any]) -> None:
    found = seen["a_round_missed_for_lack_of_budget"]
    assert found["drafts"] == [{}] * 4
    assert set(found["behind"].values()) == {1}


def test_an_id_used_twice_is_two_requests(seen: dict[str, Any]) -> None:
    at_once, later = seen["one_id_twice"]
    first, *others = at_once["widths"]
    assert first == {"a": 1, "b": 9}
    assert others == [{"a": FRAMES, "b": FRAMES}] * 2
    assert later["widths"][0] == {"a": 1, "b": 9}
    assert set(at_once["behind"].values()) == set(later["behind"].values()) == {1}


def test_field_report_15_the_result_of_a_request_that_left(seen: dict[str, Any]) -> None:
    found = seen["result_of_a_request_that_left"]
    assert found["tokens"]["a"] == FRAMES
    assert found["tokens"].get("b", 0) == 0
    assert found["behind"] == {"a": 1}
    assert found["held"] == ["a"]


def test_field_report_11_stage_zero_is_scheduled_as_without_the_shim(stages: Stages) -> None:
    armed, stock = (
        stages.call(partial(report_benches.thinker_traces, armed)) for armed in (True, False)
    )
    assert armed == stock
    spans = [step[1] for step in armed["OmniARScheduler"]]
    assert any({len(d) for d in step.values()} == {2, DRAFTS} for step in spans)
