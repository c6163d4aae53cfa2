"""Ids of a codec head stay on the device for a step where its requests allow it."""

from __future__ import annotations

import pytest
from support import no_host
from support.stages import StageError, Stages

from kstep_shim.demo.scenario import GraphMode, RequestSpec, Scenario, StageShape

#: Without the penalty: the Talker packs its history on the host unless a tensor of it says that it
#: is not there, and tensors of the soft NPU say that they are on a CPU.
PLAIN = {"repetition_penalty": 1.0}
CASES = [
    Scenario(
        f"plain{size}",
        tuple(
            RequestSpec(f"plain{size}-{i}", condition=3 + i, arrival=2 * i, sampling=PLAIN)
            for i in range(size)
        ),
    )
    for size in (1, 4)
]


@pytest.mark.parametrize("mode", [GraphMode.EAGER, GraphMode.PIECEWISE])
def test_no_frame_reads_the_device(stages: Stages, mode: GraphMode) -> None:
    shape = StageShape(frames=8, mode=mode)
    outcomes = stages.compare(shape, CASES, prepare=no_host.no_reads_of_codec_head_frames)
    for outcome in outcomes.values():
        assert outcome.engaged_steps > 0
        assert not outcome.counters.get("steps_with_reads")


def test_a_planted_read_is_noticed(stages: Stages) -> None:
    shape = StageShape(frames=8, shim=True)
    with pytest.raises(StageError, match="reads the device on the host"):
        stages.serve(shape, CASES[:1], prepare=no_host.plant_a_read_of_codec_head_frames)


def test_a_request_whose_ids_count_is_read_frame_by_frame(stages: Stages) -> None:
    options = {"presence_penalty": 1.0}
    case = Scenario("seen", (RequestSpec("seen-a", sampling=options), RequestSpec("seen-b")))
    outcome = stages.compare(StageShape(frames=8), [case])["seen"]
    assert outcome.counters["steps_with_reads"] == outcome.engaged_steps > 0
