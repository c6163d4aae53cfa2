"""K frames per step on the codec head against one, on the released stack."""

from __future__ import annotations

import pytest
from support import scenarios
from support.stages import Stages

from kstep_shim.demo.scenario import GraphMode, StageShape, staggered

EAGER, PIECEWISE = GraphMode.EAGER, GraphMode.PIECEWISE
BATCHES = [staggered(size, name=f"batch{size}") for size in (1, 2, 4)]


@pytest.mark.parametrize(("mode", "frames"), [(EAGER, 2), (EAGER, 4), (EAGER, 16), (PIECEWISE, 8)])
def test_every_batch_equals_one_frame_per_step(
    stages: Stages, mode: GraphMode, frames: int
) -> None:
    outcomes = stages.compare(StageShape(frames=frames, mode=mode), BATCHES)
    for result in outcomes.values():
        assert result.engaged_steps > 0


@pytest.mark.parametrize("frames", [4])
@pytest.mark.parametrize(
    "cases",
    [
        scenarios.codec_eos,
        scenarios.output_limits,
        scenarios.codec_ceiling,
        scenarios.limits_and_eos,
    ],
)
def test_every_ending_at_every_offset(stages: Stages, cases, frames: int) -> None:
    outcomes = stages.compare(StageShape(frames=frames), cases(frames))
    assert any(result.engaged_steps for result in outcomes.values())


@pytest.mark.parametrize("frames", [4])
def test_minimum_tokens_and_empty_speech(stages: Stages, frames: int) -> None:
    cases = [*scenarios.minimum_tokens(), *scenarios.empty_speech()]
    stages.compare(StageShape(frames=frames), cases)


def test_the_end_of_the_context(stages: Stages) -> None:
    shape = StageShape(frames=4, max_model_len=32)
    outcomes = stages.compare(shape, scenarios.context_edge())
    assert outcomes["edge"].requests["edge-a"].finish_reason == "length"


@pytest.mark.parametrize("budget", [5])
def test_a_small_token_budget(stages: Stages, budget: int) -> None:
    shape = StageShape(frames=4, max_num_batched_tokens=budget)
    stages.compare(shape, scenarios.batches((4,)))
