"""The whole exactness matrix, for either head; `make test-long` runs it."""

from __future__ import annotations

import pytest
from support import repairs, scenarios
from support.stages import Stages

from kstep_shim.demo.scenario import GraphMode, StageShape

pytestmark = pytest.mark.long

FRAMES = (2, 3, 4, 6, 8, 13, 16)
BATCHES = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("mode", list(GraphMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("frames", FRAMES)
def test_batches(stages: Stages, mode: GraphMode, frames: int) -> None:
    shape = StageShape(frames=frames, mode=mode, max_num_seqs=8)
    outcomes = stages.compare(shape, scenarios.batches(BATCHES), repair=repairs.FULL_GRAPHS)
    for result in outcomes.values():
        assert result.engaged_steps > 0


@pytest.mark.parametrize(
    "cases",
    [
        scenarios.codec_eos,
        scenarios.output_limits,
        scenarios.limits_and_eos,
        scenarios.codec_ceiling,
    ],
)
@pytest.mark.parametrize("frames", FRAMES)
def test_endings(stages: Stages, cases, frames: int) -> None:
    stages.compare(scenarios.endings_shape(frames), cases(frames))


@pytest.mark.parametrize("mode", list(GraphMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("frames", FRAMES)
def test_minimum_and_empty(stages: Stages, mode: GraphMode, frames: int) -> None:
    cases = [*scenarios.minimum_tokens(), *scenarios.empty_speech(), *scenarios.client_sampling()]
    stages.compare(StageShape(frames=frames, mode=mode), cases, repair=repairs.FULL_GRAPHS)


@pytest.mark.parametrize("mode", list(GraphMode), ids=lambda mode: mode.value)
def test_twenty_layers(stages: Stages, mode: GraphMode) -> None:
    shape = StageShape(frames=8, mode=mode, layers=20)
    stages.compare(shape, scenarios.batches((1, 4)), repair=repairs.FULL_GRAPHS)


def test_sixteen_bit_weights(stages: Stages) -> None:
    stages.compare(StageShape(frames=8, dtype="bfloat16"), scenarios.batches((1, 4)))


@pytest.mark.parametrize("frames", FRAMES)
def test_a_lone_request_takes_few_steps(stages: Stages, frames: int) -> None:
    outcome = stages.compare(StageShape(frames=frames), scenarios.batches((1,)))["batch1"]
    tokens = len(outcome.requests["batch1-0"].tokens)
    steps = sum(1 for step in outcome.steps if step.widths)
    assert steps <= -(-(tokens - 1) // frames) + 2


@pytest.mark.parametrize("budget", [16, 15, 13, 10, 5, 3])
def test_small_token_budgets(stages: Stages, budget: int) -> None:
    # A budget below the number of requests is refused by vLLM itself.
    shape = StageShape(frames=4, max_num_batched_tokens=budget, max_num_seqs=min(4, budget))
    stages.compare(shape, scenarios.batches((4,)))
