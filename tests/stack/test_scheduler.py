"""The scheduler guards, on the real OmniARScheduler."""

from __future__ import annotations

from typing import Any

import pytest
from support import scheduler_cases
from support.scheduler_cases import DRAFTS, FRAMES
from support.stages import Stages


@pytest.fixture(scope="module")
def seen(stages: Stages) -> dict[str, Any]:
    return stages.call(scheduler_cases.run_all)


def test_a_waiting_request_drops_drafts(seen: dict[str, Any]) -> None:
    case = seen["waiting_request_drops_drafts"]
    assert case["widths"] == {"a": 1, "b": 5}
    assert case["drafts"] == {}
    assert case["total"] == 6


def test_a_lone_decode_keeps_drafts(seen: dict[str, Any]) -> None:
    case = seen["lone_decode_keeps_drafts"]
    assert case["widths"] == {"a": FRAMES}
    assert case["drafts"] == {"a": DRAFTS}


def test_a_running_prompt_chunk_drops_drafts(seen: dict[str, Any]) -> None:
    case = seen["running_chunk_drops_drafts"]
    assert case["widths"]["a"] == 1
    assert case["widths"]["b"] > 1
    assert case["drafts"] == {}


def test_another_stage_keeps_its_drafts(seen: dict[str, Any]) -> None:
    case = seen["other_stage_is_untouched"]
    assert case["widths"]["a"] == FRAMES
    assert case["drafts"] == {"a": DRAFTS}


def test_stage_0_runs_the_asynchronous_override_of_a_method_that_stage_1_covers(
    seen: dict[str, Any],
) -> None:
    case = seen["async_scheduler_keeps_its_own_booking"]
    assert case == {"placeholders": 1, "covered": []}


def test_a_chunk_beside_a_steady_decode_drops_drafts(seen: dict[str, Any]) -> None:
    case = seen["seven_token_chunk_drops_drafts"]
    assert case["widths"] == {"a": 1, "b": 5}
    assert case["drafts"] == {}


def test_one_request_without_drafts_makes_the_step_single_frame(seen: dict[str, Any]) -> None:
    case = seen["first_decode_without_drafts"]
    assert case["widths"] == {"a": 1, "b": 1}
    assert case["drafts"] == {}
    assert case["total"] == 2


def test_a_waiting_request_that_cannot_join_changes_nothing(seen: dict[str, Any]) -> None:
    case = seen["waiting_beyond_capacity_keeps_drafts"]
    assert case["widths"] == {"a": FRAMES, "b": FRAMES}


@pytest.mark.parametrize(
    "name",
    [
        "context_edge_goes_single_frame",
        "budget_goes_single_frame",
        "scarce_blocks_go_single_frame",
        "logprobs_go_single_frame",
    ],
)
def test_what_cannot_be_k_wide_goes_single_frame(seen: dict[str, Any], name: str) -> None:
    case = seen[name]
    assert set(case["widths"].values()) == {1}
    assert case["drafts"] == {}


def test_no_span_below_one_is_scheduled(seen: dict[str, Any]) -> None:
    case = seen["drafts_without_a_token_to_decode"]
    assert case["widths"] == {"a": 1}
    assert case["drafts"] == {}


def test_drafts_that_differ_in_number_are_taken_back(seen: dict[str, Any]) -> None:
    assert seen["uneven_drafts_are_taken_back"] == {
        (7, 3): {"a": 0, "b": 0},
        (7, 0): {"a": 0, "b": 0},
        (7, 7): {"a": 7, "b": 7},
        (0, 0): {"a": 0, "b": 0},
    }


def test_the_books_follow_the_rewritten_spans(seen: dict[str, Any]) -> None:
    case = seen["booking_follows_the_rewrite"]
    assert case["widths"] == {"a": 1, "b": 1}
    assert case["drafts"] == {}
    assert case["computed"] == {name: count + 1 for name, count in case["before"].items()}
    assert case["in_flight"] == {"a": 1, "b": 1}


def test_padding_never_counts_as_drafts(seen: dict[str, Any]) -> None:
    case = seen["padded_drafts_do_not_count"]
    assert case["widths"] == {"a": 1, "b": 1}
    assert case["drafts"] == {}


def test_an_empty_row_is_rolled_back_and_scheduled_again(seen: dict[str, Any]) -> None:
    case = seen["empty_row_is_rolled_back"]
    assert case["after"] == case["before"]
    assert case["widths"] == [{"a": FRAMES, "b": FRAMES}]
