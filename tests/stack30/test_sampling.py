"""Sampling parameters of clients on the codec head: K frames per step against one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import sampling_cases
from support.sampling_cases import BIASED, OPTIONS
from support.stages import Stages

from kstep_shim.demo.outcome import Outcome, differences
from kstep_shim.demo.scenario import StageShape

SHAPE = StageShape(max_num_seqs=20)
EVERY = {**OPTIONS, **BIASED}


@pytest.mark.parametrize("frames", [4, pytest.param(8, marks=pytest.mark.long)])
def test_every_option_equals_one_frame_per_step_alone_and_in_one_batch(
    stages: Stages, frames: int
) -> None:
    cases = [
        *sampling_cases.pairs(EVERY),
        sampling_cases.mixed(EVERY),
        sampling_cases.mixed(dict(reversed(EVERY.items())), "apart", stride=5),
        sampling_cases.minimum_and_end(),
    ]
    outcomes = stages.compare(replace(SHAPE, frames=frames), cases)
    assert all(outcome.engaged_steps > 0 for outcome in outcomes.values())
    said = {name: outcomes[f"pair-{name}"].requests[f"pair-{name}-a"].tokens for name in EVERY}
    # An option that changed nothing would show nothing; one frame per step ignores top_k, too.
    same = {name for name in EVERY if said[name] == said["deployed"]}
    assert same == {"deployed", "top_k", "ignore_eos", "no_penalty"}


@pytest.mark.parametrize("frames", [4, pytest.param(8, marks=pytest.mark.long)])
def test_an_unseeded_request_changes_nothing_for_seeded_ones(stages: Stages, frames: int) -> None:
    case = sampling_cases.unseeded()
    expected = stages.baseline(SHAPE, [case])["unseeded"]
    actual = stages.serve(replace(SHAPE, frames=frames, shim=True), [case])["unseeded"]
    assert actual.engaged_steps > 0
    seeded = [name for name in expected.requests if "free" not in name]
    assert len(seeded) == 3
    assert differences(_only(expected, seeded), _only(actual, seeded)) == []
    for name in expected.requests.keys() - set(seeded):
        # Its codes are the global generator's, which every step of everybody moves.
        request = actual.requests[name]
        assert (
            request.codes
            == [token for token in request.tokens if token != 63][: len(request.codes)]
        )
        assert len(request.tokens) - len(request.codes) == 1


def _only(outcome: Outcome, names: list[str]) -> Outcome:
    return replace(outcome, requests={name: outcome.requests[name] for name in names})


def test_clients_reach_the_stage_with_options_that_vllm_refuses_beside_drafts(
    stages: Stages,
) -> None:
    refusals, passed = stages.call(sampling_cases.refused_and_passed)
    assert all("not yet supported with speculative decoding" in refusal for refusal in refusals)
    assert passed == [{"logit_bias": {7: 3.0}, "min_p": 0.3}]


@pytest.mark.parametrize("frames", [4])
def test_logprobs_are_those_of_one_frame_per_step(stages: Stages, frames: int) -> None:
    expected, _ = stages.call(sampling_cases.logprobs_at_1)
    actual, steps = stages.call(sampling_cases.logprobs_at_4)
    assert {name: len(rows) for name, rows in expected.items()} == {"b0": 20, "b1": 21, "b5": 25}
    assert actual == expected
    # Beside them nobody runs several frames; before and after them the other request does.
    asking = {"b0", "b1", "b5"}
    assert all(widths["a"] == 1 for widths in steps if "a" in widths and asking & widths.keys())
    assert any(widths == {"a": frames} for widths in steps)
