"""Too few KV blocks on the codec head: one request ends, the stage and the others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import Outcome, differences
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape

ROOMY = StageShape(max_model_len=256)
SCARCE = replace(ROOMY, engine_args={"num_gpu_blocks_override": 4})
CASE = Scenario(
    "scarce",
    (
        *(
            RequestSpec(f"scarce-{n}", 8, arrival=3 * n, min_tokens=200, max_tokens=200)
            for n in range(3)
        ),
        RequestSpec("scarce-late", arrival=140, max_tokens=30),
    ),
    max_steps=1000,
)


def test_the_released_stack_stops_the_whole_stage(stages: Stages) -> None:
    with pytest.raises(StageError, match="Talker prefill span exceeds condition"):
        stages.baseline(SCARCE, [CASE])


@pytest.mark.parametrize("frames", [4])
def test_a_preempted_request_ends_and_the_others_equal_one_frame_per_step(
    stages: Stages, frames: int
) -> None:
    expected = stages.baseline(ROOMY, [CASE])["scarce"]
    actual = stages.serve(replace(SCARCE, frames=frames, shim=True), [CASE])["scarce"]
    preempted = [name for name, r in actual.requests.items() if r.finish_reason == "error"]
    assert preempted == ["scarce-1", "scarce-2"]
    assert actual.counters["requests_preempted"] == len(preempted)
    for name in preempted:
        request = actual.requests[name]
        assert str(request.stop_reason).startswith("preempted: the KV cache ran out of blocks")
        # What it had said by then was right.
        assert len(request.codes) > 90
        assert request.codes == expected.requests[name].codes[: len(request.codes)]
    others = expected.requests.keys() - set(preempted)
    assert differences(_only(expected, others), _only(actual, others)) == []


def _only(outcome: Outcome, names: set[str]) -> Outcome:
    return replace(outcome, requests={name: outcome.requests[name] for name in names})
