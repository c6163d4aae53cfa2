"""What the released stack does with K > 1 on the codec head: this is why the shim exists."""

from __future__ import annotations

import pytest
from support.stages import StageError, Stages

from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape


def test_the_released_stack_livelocks_at_the_first_drafted_step(stages: Stages) -> None:
    case = Scenario("livelock", (RequestSpec("livelock-a", max_tokens=20),), max_steps=60)
    with pytest.raises(StageError, match="scenario livelock did not end in 60 steps"):
        stages.serve(StageShape(frames=4), [case])
