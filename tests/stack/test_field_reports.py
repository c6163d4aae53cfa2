"""Failures from the field that K=1 answers as it is: the same traffic must end the same way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from support import field_reports
from support.field_reports import NO_EOS
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import Outcome, differences
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape

FRAMES = 4


@dataclass
class Served:
    """Every scenario at K=1 and at K, served once."""

    expected: dict[str, Outcome]
    actual: dict[str, Outcome]

    def unequal(self, report: int) -> dict[str, list[str]]:
        names = [scenario.name for scenario in field_reports.BY_REPORT[report]]
        found = {name: differences(self.expected[name], self.actual[name]) for name in names}
        return {name: what for name, what in found.items() if what}


@pytest.fixture(scope="module")
def served(stages: Stages) -> Served:
    shape, cases = StageShape(frames=FRAMES), field_reports.everything()
    expected = stages.baseline(shape, cases)
    actual = stages.serve(replace(shape, shim=True), cases)
    assert all(result.counters["steps_engaged"] for result in actual.values())
    return Served(expected, actual)


def test_field_report_03_minimum_on_any_row_of_a_step(served: Served) -> None:
    assert served.unequal(3) == {}
    for scenario in field_reports.BY_REPORT[3]:
        for request in served.actual[scenario.name].requests.values():
            assert request.finish_reason == "stop"


def test_field_report_04_empty_speech_leaves_its_neighbours_wide(served: Served) -> None:
    assert served.unequal(4) == {}
    outcome = served.actual["empty-beside"]
    empty = outcome.requests["empty-e"]
    assert (empty.codes, len(empty.tokens)) == ([], 51)
    beside = [s for s in outcome.steps if "empty-e" in s.widths and not s.prefill]
    wide = [s for s in beside if set(s.widths.values()) == {FRAMES}]
    print(f"{len(wide)} of {len(beside)} steps beside the empty request ran {FRAMES} frames")
    assert len(wide) >= 0.9 * len(beside)


def test_field_report_06_endings_inside_a_step(served: Served) -> None:
    assert served.unequal(6) == {}


def test_field_report_11_options_on_the_multi_token_path(served: Served) -> None:
    assert served.unequal(11) == {}
    steps = served.actual["logprobs-four"].steps
    assert not [s for s in steps if "log-a" in s.widths and s.drafts]
    assert [s for s in steps if s.drafts]


def test_field_report_16_one_seed_speaks_one_way(served: Served) -> None:
    assert served.unequal(16) == {}
    speakers = {"seed-alone": "a", "seed-four": "b", "seed-late": "g", "seed-end": "h"}
    spoken = [served.actual[name].requests[f"seed-{who}"] for name, who in speakers.items()]
    assert [s.codes for s in spoken] == [spoken[0].codes] * 4
    assert [s.draws for s in spoken] == [spoken[0].draws] * 4


OPTIONS = [
    {"allowed_token_ids": [5]},
    {"allowed_token_ids": [0]},
    {"logit_bias": {1: -100.0, 7: 3.0}},
    {"_bad_words_token_ids": [[1]]},
]


def test_field_report_11_options_that_name_ids_are_ignored(stages: Stages) -> None:
    def case(index: int, options: dict[str, object]) -> Scenario:
        first = RequestSpec(f"o{index}-a", min_tokens=0, eos_frame=15, sampling=options)
        return Scenario(f"o{index}", (first, RequestSpec(f"o{index}-b", arrival=2, eos_frame=30)))

    shape = StageShape(frames=FRAMES)
    plain = [case(index, {}) for index in range(len(OPTIONS))]
    expected = stages.baseline(shape, plain)
    actual = stages.serve(
        replace(shape, shim=True), [case(i, options) for i, options in enumerate(OPTIONS)]
    )
    assert {name: differences(expected[name], actual[name]) for name in actual} == {
        name: [] for name in actual
    }


def test_field_report_11_the_stock_stack_crashes_on_such_an_option(stages: Stages) -> None:
    request = RequestSpec("o", min_tokens=0, eos_frame=15, sampling=OPTIONS[0])
    with pytest.raises(StageError):
        stages.serve(StageShape(), [Scenario("o", (request,))])


@pytest.mark.parametrize("frames", [4, pytest.param(8, marks=pytest.mark.long)])
def test_field_report_05_the_end_of_the_context(stages: Stages, frames: int) -> None:
    longs = tuple(
        RequestSpec(f"ctx-{c}", condition=c, arrival=c - 3, eos_frame=NO_EOS) for c in (3, 5, 6)
    )
    mate = RequestSpec("ctx-mate", condition=4, arrival=1, eos_frame=30)
    shape = StageShape(frames=frames, max_model_len=40)
    outcome = stages.compare(shape, [Scenario("ctx", (*longs, mate))], prepare=watch_positions)[
        "ctx"
    ]
    assert outcome.requests["ctx-3"].finish_reason == "length"


def watch_positions() -> None:
    """Stop the stage at a position that the context does not have."""
    from vllm_omni.model_executor.models.minicpmo_4_5 import minicpmo_4_5_omni_tts as module

    talker = module.MiniCPMO45OmniTTSForConditionalGeneration
    forward = talker.forward

    def watched(self, input_ids=None, positions=None, *args, **kwargs):
        if positions is not None and int(positions.max()) >= 40:
            raise AssertionError(f"position {int(positions.max())}")
        return forward(self, input_ids, positions, *args, **kwargs)

    talker.forward = watched
