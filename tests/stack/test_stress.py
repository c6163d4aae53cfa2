"""Random traffic with clients that leave, at several K: the part of ``make soak`` that is quick."""

from __future__ import annotations

import pytest
from support.stages import Stages
from support.stress import Stress
from support.stress_plan import StressPlan


@pytest.fixture(scope="module")
def stress(stages: Stages) -> Stress:
    return Stress(stages, timeout=1800.0)


@pytest.mark.parametrize(
    ("frames", "budget"),
    [
        (2, 33),
        pytest.param(4, 24, marks=pytest.mark.long),
        pytest.param(8, 64, marks=pytest.mark.long),
        (16, 1024),
    ],
    ids=str,
)
def test_field_report_09_random_traffic_keeps_the_books(
    stress: Stress, frames: int, budget: int
) -> None:
    plan = StressPlan(seed=7, frames=frames, steps=30, budget=budget, kinds=6, abort_share=0.3)
    print(stress.check(plan))


@pytest.mark.long
@pytest.mark.parametrize("frames", [2, 4, 8, 16])
@pytest.mark.parametrize("seed", [21, 22])
def test_random_traffic_for_longer(stress: Stress, frames: int, seed: int) -> None:
    print(stress.check(StressPlan(seed, frames, steps=400, budget=(24, 1024)[seed % 2])))
