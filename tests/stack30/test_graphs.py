"""Full graphs on the codec head, once the released stack can replay them at all."""

from __future__ import annotations

import pytest
from support import eight_points, repairs, scenarios
from support.stages import Stages

from kstep_shim.demo.scenario import GraphMode, StageShape


@pytest.mark.parametrize("frames", [4])
def test_full_graphs_equal_one_frame_per_step(stages: Stages, frames: int) -> None:
    shape = StageShape(frames=frames, mode=GraphMode.FULL_DECODE_ONLY, max_num_seqs=8)
    cases = [
        *scenarios.batches((1, 2, 4)),
        *scenarios.output_limits(frames)[:5],
        *eight_points.CASES.values(),
    ]
    outcomes = stages.compare(shape, cases, repair=repairs.name_graph_backend)
    assert all(outcome.engaged_steps > 0 for outcome in outcomes.values())


@pytest.mark.parametrize("frames", [4])
def test_every_frame_replays_the_one_query_graph(stages: Stages, frames: int) -> None:
    shape = StageShape(frames=frames, mode=GraphMode.FULL_DECODE_ONLY)
    outcomes = stages.compare(
        shape,
        [*scenarios.batches((1, 3, 4)), *scenarios.output_limits(frames)[:5]],
        prepare=repairs.name_graph_backend_and_narrow_on,
        repair=repairs.name_graph_backend,
    )
    for outcome in outcomes.values():
        assert outcome.counters["steps_narrow"] == outcome.counters["steps_engaged"]
    assert outcomes["batch4"].engaged_steps > 0
