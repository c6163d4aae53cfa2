"""From a step's first frame to its last tail nothing passes between host and device."""

from __future__ import annotations

import os

import pytest
from support import no_host, scenarios
from support.stages import StageError, Stages

from kstep_shim.demo.scenario import GraphMode, StageShape

EAGER, FULL = GraphMode.EAGER, GraphMode.FULL_DECODE_ONLY


def narrow() -> None:
    os.environ["KSTEP_SHIM_NARROW"] = "on"
    no_host.no_host_in_the_loop()


@pytest.mark.parametrize(
    ("mode", "prepare"),
    [(EAGER, no_host.no_host_in_the_loop), (FULL, narrow)],
    ids=["wide", "narrow"],
)
def test_the_loop_needs_no_host(stages: Stages, mode: GraphMode, prepare) -> None:
    cases = scenarios.batches((1, 4, 8))
    outcomes = stages.compare(StageShape(frames=8, mode=mode), cases, prepare=prepare)
    assert all(result.engaged_steps > 0 for result in outcomes.values())


def test_a_planted_read_is_noticed(stages: Stages) -> None:
    shape = StageShape(frames=8, shim=True)
    with pytest.raises(StageError, match="HostReadError"):
        stages.serve(shape, scenarios.batches((1,)), prepare=no_host.plant_a_read)
