"""Options that name ids, on a head whose batch reports no vocabulary."""

from __future__ import annotations

import pytest
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import differences
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape

ALLOWED = {"allowed_token_ids": [1, 2, 3, 63]}


def case(name: str, options: dict[str, object]) -> Scenario:
    asks = RequestSpec("asks", max_tokens=30, sampling=options)
    return Scenario(name, (asks, RequestSpec("neighbour", condition=4, max_tokens=30, arrival=2)))


def test_allowed_token_ids_crash_the_released_stage(stages: Stages) -> None:
    with pytest.raises(StageError, match="index is out of bounds for dimension with size 0"):
        stages.serve(StageShape(), [case("allowed", ALLOWED)])


def test_the_shim_ignores_them_and_keeps_logprobs(stages: Stages) -> None:
    shape = StageShape(frames=4, shim=True)
    asked = [case("allowed", ALLOWED), case("logprobs", {"logprobs": 5})]
    served = stages.serve(shape, asked)
    plain = stages.baseline(shape, [case("plain", {}), asked[1]])
    assert differences(plain["plain"], served["allowed"]) == []
    assert differences(plain["logprobs"], served["logprobs"]) == []
