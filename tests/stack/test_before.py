"""What the unmodified stack does with K > 1: this is why the shim exists.

These must keep failing without the shim. Each peel removes one obstacle to show the next.
"""

from __future__ import annotations

import pytest
from support import peels, scenarios
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import differences
from kstep_shim.demo.scenario import Scenario, StageShape

STOCK = StageShape(frames=4, shim=False)


def test_unmodified_stack_crashes_at_the_first_drafted_step(stages: Stages) -> None:
    with pytest.raises(StageError, match="IndexError: index 3 is out of bounds"):
        stages.serve(STOCK, scenarios.batches((1,)))


def test_peel_1_one_stop_row_per_position_schedules_a_negative_span(stages: Stages) -> None:
    with pytest.raises(StageError, match="assert num_tokens_scheduled > 0"):
        stages.serve(STOCK, scenarios.batches((1,)), prepare=peels.repeat_stop_rows)


def test_peel_1_with_constant_drafts_livelocks(stages: Stages) -> None:
    lone = scenarios.batches((1,))[0]
    short = Scenario("livelock", lone.requests, max_steps=40)
    with pytest.raises(StageError, match="scenario livelock did not end in 40 steps"):
        stages.serve(STOCK, [short], prepare=peels.repeat_stop_rows_with_constant_drafts)


def test_peel_2_with_a_vocabulary_it_speaks_wrongly(stages: Stages) -> None:
    cases = scenarios.batches((1,))
    expected = stages.baseline(STOCK, cases)["batch1"]
    actual = stages.serve(STOCK, cases, prepare=peels.repeat_stop_rows_and_size_vocabulary)
    assert actual["batch1"].requests["batch1-0"].codes != expected.requests["batch1-0"].codes
    assert differences(expected, actual["batch1"])
