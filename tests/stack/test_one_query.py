"""K frames per step through the graphs that K=1 replays, captured beside the K-query graphs."""

from __future__ import annotations

import pytest
from support import enpu, scenarios
from support.graph_cases import narrow_on
from support.stages import Stages

from kstep_shim.demo.scenario import GraphMode, StageShape

FULL = GraphMode.FULL_DECODE_ONLY


def narrow_on_with_soft_segmentation() -> None:
    narrow_on()
    enpu.update_before_replay()


@pytest.mark.parametrize("frames", [4, pytest.param(16, marks=pytest.mark.long)])
def test_every_step_replays_them_and_equals_one_frame_per_step(stages: Stages, frames: int) -> None:
    cases = [*scenarios.batches((1, 3)), *scenarios.codec_ceiling(frames)[-1:]]
    outcomes = stages.compare(StageShape(frames=frames, mode=FULL), cases, prepare=narrow_on)
    for result in outcomes.values():
        assert result.counters["steps_narrow"] == result.counters["steps_engaged"] > 0
    assert outcomes[cases[-1].name].counters["draftless_one_query"] > 0


@pytest.mark.long
def test_rows_that_pad_a_graph(stages: Stages) -> None:
    shape = StageShape(frames=4, mode=FULL, capture_sizes=(8, 16))
    outcomes = stages.compare(shape, scenarios.batches((1, 2, 3)), prepare=narrow_on)
    assert all(result.counters["steps_narrow"] > 0 for result in outcomes.values())


@pytest.mark.long
def test_parameter_update_before_each_replay(stages: Stages) -> None:
    outcomes = stages.compare(
        StageShape(frames=4, mode=FULL),
        scenarios.batches((2,)),
        prepare=narrow_on_with_soft_segmentation,
    )
    assert outcomes["batch2"].counters["steps_narrow"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "cases", [scenarios.codec_eos, scenarios.output_limits, scenarios.codec_ceiling]
)
def test_every_ending_at_every_offset(stages: Stages, cases) -> None:
    shape = StageShape(frames=4, mode=FULL)
    outcomes = stages.compare(shape, cases(4), prepare=narrow_on)
    assert any(result.counters["steps_narrow"] for result in outcomes.values())
