"""What K frames per step need on the codec head: with it they equal one, without it they do not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from support import eight_points, mutants
from support.eight_points import CASES, SHAPE
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import Outcome, differences


def without(stages: Stages, guard: str, *names: str) -> dict[str, list[str]]:
    """How the cases `names` differ from one frame per step with this guard switched off."""
    cases = [CASES[name] for name in names]
    expected = stages.baseline(SHAPE, list(CASES.values()))
    off = partial(mutants.switch_off, guard)
    actual = stages.serve(replace(SHAPE, shim=True), cases, prepare=off)
    return {name: differences(expected[name], outcome) for name, outcome in actual.items()}


def test_every_case_equals_one_frame_per_step(stages: Stages) -> None:
    outcomes = stages.compare(SHAPE, list(CASES.values()))
    assert all(outcome.engaged_steps > 0 for outcome in outcomes.values())
    _assert_cases_are_as_meant(outcomes)


def _assert_cases_are_as_meant(outcomes: dict[str, Outcome]) -> None:
    endings, minimum = outcomes["endings"].requests, outcomes["minimum"].requests
    for name, request in endings.items():
        assert request.finish_reason == ("length" if "limit" in name else "stop")
    assert len({len(request.tokens) % SHAPE.frames for request in minimum.values()}) > 1
    assert all(len(r.tokens) < 20 for r in outcomes["ceiling"].requests.values())


def test_a_codec_head_that_is_taken_for_a_stop_row_does_not_start(stages: Stages) -> None:
    with pytest.raises(StageError, match="lacks batch_stop_logits, take_batch_stop_logits"):
        without(stages, "a codec head is taken for a stop row", "penalty")


def test_drafts_of_zero_are_spoken(stages: Stages) -> None:
    found = without(stages, "drafts are continue ids", "penalty")
    assert _differ(found, "penalty-a: codes", "penalty-b: payloads")


def test_the_engines_sampler_knows_neither_the_window_nor_the_forced_end(stages: Stages) -> None:
    found = without(stages, "the engine samples a frame", "penalty", "ceiling")
    assert _differ(found, "penalty-a: codes", "ceiling-9: tokens", "ceiling-10: tokens")


def test_ids_that_are_counted_late_lift_the_minimum_late(stages: Stages) -> None:
    found = without(stages, "ids are counted after the step", "minimum", "counted")
    assert any("tokens" in line for line in found["minimum"])
    assert _differ(found, "counted-a: codes")


def test_an_id_is_counted_once_behind_a_step(stages: Stages) -> None:
    pairs = stages.call(eight_points.ids_counted_twice)
    assert pairs
    assert all(counted == had for counted, had in pairs)


def test_an_id_that_is_not_taken_back_is_counted_twice(stages: Stages) -> None:
    pairs = stages.call(partial(eight_points.ids_counted_twice, "ids are counted twice"))
    assert any(counted > had for counted, had in pairs)


def test_a_frame_behind_an_end_would_go_out(stages: Stages) -> None:
    found = without(stages, "frames behind an end are emitted", "endings")
    assert _differ(found, "endings-limit10: codes", "endings-limit11: codes")
    assert any(line.startswith("endings-stop") and ": codes" in line for line in found["endings"])


def test_a_vocabulary_that_stays_makes_top_k_act(stages: Stages) -> None:
    found = without(stages, "the vocabulary stays raised", "top_k")
    assert _differ(found, "top_k-a: codes")


def test_without_a_vocabulary_every_code_of_a_step_is_lost(stages: Stages) -> None:
    with pytest.raises(StageError, match="neither continue nor stop"):
        without(stages, "the vocabulary is not raised", "top_k")


def test_the_installed_order_of_stop_checks_decides(stages: Stages) -> None:
    found = without(stages, "the minimum is asked before a stop", "ceiling")
    assert _differ(found, "ceiling-10: draws", "ceiling-11: draws")


def test_the_wide_head_is_computed_for_one_row_per_request_and_frame(stages: Stages) -> None:
    drafted = _drafted(stages.call(eight_points.rows_of_the_head))
    assert drafted
    for _, requests, calls in drafted:
        assert calls == [requests] * SHAPE.frames


def test_the_stock_step_computes_it_once_more_for_all_rows(stages: Stages) -> None:
    steps = stages.call(partial(eight_points.rows_of_the_head, "the wide head runs again"))
    assert _drafted(steps)
    for tokens, requests, calls in _drafted(steps):
        assert calls == [*[requests] * SHAPE.frames, tokens]


def _differ(found: dict[str, list[str]], *beginnings: str) -> bool:
    lines = [line for lines in found.values() for line in lines]
    return all(any(line.startswith(beginning) for line in lines) for beginning in beginnings)


def _drafted(steps: list[tuple[int, int, list[int]]]) -> list[tuple[int, int, list[int]]]:
    return [step for step in steps if step[1] and step[0] == SHAPE.frames * step[1]]
