"""Failures from the field that have to do with captured graphs (20 to 24).

What only hardware can show of them: that a capture faults on a part (23), that memory taken away
by a sleep comes back at the same addresses (22), and that a copy is overtaken by a kernel (24).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support import graph_cases, no_host, scenarios
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import differences
from kstep_shim.demo.scenario import GraphMode, StageShape

EAGER, FULL = GraphMode.EAGER, GraphMode.FULL_DECODE_ONLY


def long(value: object) -> Any:
    """A parameter for `make test-long` only."""
    return pytest.param(value, marks=pytest.mark.long)


@pytest.mark.parametrize("frames", [4, long(3), long(5)])
def test_field_report_20_a_step_without_its_graph_is_exact_and_counted(
    stages: Stages, frames: int
) -> None:
    # Only one request of K frames has a graph.
    shape = StageShape(frames=frames, mode=FULL, capture_sizes=(frames,))
    outcomes = stages.compare(shape, scenarios.batches((1, 2)))
    assert "steps_without_graph" not in outcomes["batch1"].counters
    counters = outcomes["batch2"].counters
    assert 0 < counters["steps_without_graph"] < counters["steps_engaged"]


@pytest.mark.long
@pytest.mark.parametrize(
    "prepare", [graph_cases.poisoned_padding, graph_cases.wide_padding_is_checked]
)
def test_field_report_21_padding_rows_point_nowhere(
    stages: Stages, prepare: Callable[[], None]
) -> None:
    shape = StageShape(frames=4, mode=FULL, capture_sizes=(16, 32))
    outcomes = stages.compare(shape, scenarios.batches((4, 1, 3)), prepare=prepare)
    assert all(result.engaged_steps > 0 for result in outcomes.values())


@pytest.mark.long
def test_field_report_22_weights_that_come_back_in_place_are_used(stages: Stages) -> None:
    shape = StageShape(frames=4, shim=True, mode=FULL)
    cases = scenarios.batches((1,))
    change = graph_cases.new_weights_half_way
    woken, one_frame = (
        stages.serve(each, cases, prepare=change)["batch1"]
        for each in (shape, replace(shape, frames=1, shim=False))
    )
    assert differences(one_frame, woken) == []
    assert differences(stages.baseline(shape, cases)["batch1"], woken) != []
    assert woken.counters["steps_narrow"] > 0


@pytest.mark.long
def test_field_report_23_when_their_capture_fails_the_wide_replay_serves(stages: Stages) -> None:
    outcome = stages.compare(
        StageShape(frames=4, mode=FULL),
        scenarios.batches((2,)),
        prepare=graph_cases.narrow_on_but_its_capture_fails,
    )["batch2"]
    assert outcome.counters["steps_engaged"] > 0
    assert outcome.counters["steps_narrow"] == 0


@pytest.mark.parametrize(
    ("mode", "prepare"),
    [
        pytest.param(EAGER, no_host.no_host_in_the_loop, id="wide", marks=pytest.mark.long),
        pytest.param(FULL, graph_cases.narrow_without_host, id="narrow"),
    ],
)
def test_field_report_24_the_loop_copies_nothing_between_host_and_device(
    stages: Stages, mode: GraphMode, prepare: Callable[[], None]
) -> None:
    cases = scenarios.batches((1, 4, 8))
    outcomes = stages.compare(StageShape(frames=8, mode=mode), cases, prepare=prepare)
    assert all(result.engaged_steps > 0 for result in outcomes.values())


@pytest.mark.long
def test_field_report_24_a_planted_read_is_noticed(stages: Stages) -> None:
    shape = StageShape(frames=8, shim=True)
    with pytest.raises(StageError, match="HostReadError"):
        stages.serve(shape, scenarios.batches((1,)), prepare=no_host.plant_a_read)
