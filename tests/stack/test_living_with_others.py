"""Tracers and other patches on the same methods, before and after the shim."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import scenarios, tracers
from support.stages import StageError, Stages

from kstep_shim.demo.scenario import StageShape

SHAPE = StageShape(frames=tracers.FRAMES)


@pytest.mark.parametrize("others", [tracers.trace, tracers.trace_on_top, tracers.ascend_again])
def test_the_speech_is_the_same(stages: Stages, others: Callable[[], None]) -> None:
    outcomes = stages.compare(SHAPE, scenarios.batches((2,)), prepare=others)
    assert outcomes["batch2"].engaged_steps > 0


def test_a_method_replaced_by_assignment_stops_the_start_up(stages: Stages) -> None:
    shape = StageShape(frames=tracers.FRAMES, shim=True)
    with pytest.raises(StageError, match=r"NPUARModelRunner\._sample was replaced by function"):
        stages.serve(shape, scenarios.batches((1,)), prepare=tracers.replaced)
