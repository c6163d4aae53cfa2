"""A grammar on the codec head: one frame per step while it speaks, several before and after it."""

from __future__ import annotations

from support import grammars
from support.stages import Stages

from kstep_shim.demo.outcome import differences


def test_a_grammar_gets_one_frame_per_step_and_equals_it(stages: Stages) -> None:
    expected = stages.call(grammars.serve_at_1)
    actual = stages.call(grammars.serve_at_4)
    assert all(code % 2 for code in expected.requests["odd"].codes)
    assert len(expected.requests["odd"].codes) > 5
    assert differences(expected, actual) == []
    steps = [step.widths for step in actual.steps]
    assert all(widths["a"] == 1 for widths in steps if {"a", "odd"} <= widths.keys())
    assert any(widths == {"a": 4} for widths in steps)
