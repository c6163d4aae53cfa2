"""K frames per step against one, on the real scheduler, worker, runner and Talker of a stack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import enpu, repairs, scenarios
from support.stages import Stages

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head
from kstep_shim.demo.scenario import GraphMode, StageShape

EAGER, PIECEWISE, FULL = GraphMode.EAGER, GraphMode.PIECEWISE, GraphMode.FULL_DECODE_ONLY


@pytest.mark.parametrize(
    ("mode", "frames"),
    [
        (EAGER, 3),
        (EAGER, 16),
        (PIECEWISE, 8),
        (FULL, 4),
    ],
)
def test_every_batch_equals_one_frame_per_step(
    stages: Stages, mode: GraphMode, frames: int
) -> None:
    shape = StageShape(frames=frames, mode=mode)
    outcomes = stages.compare(shape, scenarios.batches((1, 2, 4)), repair=repairs.FULL_GRAPHS)
    for result in outcomes.values():
        assert result.engaged_steps > 0


@pytest.mark.parametrize(
    ("mode", "sizes"), [(PIECEWISE, (3, 16)), (FULL, (8, 16))], ids=["piecewise", "full"]
)
def test_padded_graph_sizes(stages: Stages, mode: GraphMode, sizes: tuple[int, ...]) -> None:
    shape = StageShape(frames=4, mode=mode, capture_sizes=sizes)
    stages.compare(shape, scenarios.batches((1, 2, 3)), repair=repairs.FULL_GRAPHS)


def test_parameter_update_before_each_replay(stages: Stages) -> None:
    shape = StageShape(frames=4, mode=FULL)
    cases = scenarios.batches((2,))
    outcomes = stages.compare(
        shape, cases, prepare=enpu.update_before_replay, repair=repairs.FULL_GRAPHS
    )
    assert outcomes["batch2"].engaged_steps > 0


def test_the_end_of_the_context(stages: Stages) -> None:
    shape = StageShape(frames=4, max_model_len=32)
    outcomes = stages.compare(shape, scenarios.context_edge())
    assert outcomes["edge"].requests["edge-a"].finish_reason == "length"


@pytest.mark.parametrize("budget", [5])
def test_a_small_token_budget(stages: Stages, budget: int) -> None:
    shape = StageShape(frames=4, max_num_batched_tokens=budget)
    stages.compare(shape, scenarios.batches((4,)))


@pytest.mark.parametrize("frames", [4])
@pytest.mark.parametrize(
    "cases",
    [
        scenarios.codec_eos,
        scenarios.output_limits,
        scenarios.codec_ceiling,
    ],
)
def test_every_ending_at_every_offset(stages: Stages, cases, frames: int) -> None:
    outcomes = stages.compare(scenarios.endings_shape(frames), cases(frames))
    assert any(result.engaged_steps for result in outcomes.values())


@pytest.mark.parametrize("frames", [4])
def test_minimum_tokens_and_empty_speech(stages: Stages, frames: int) -> None:
    cases = [*scenarios.minimum_tokens(), *scenarios.empty_speech()]
    outcomes = stages.compare(StageShape(frames=frames), cases)
    # On a codec head the codec's own end is a stop token, which its minimum does not hold back.
    late, empty = (51, 51) if installed_head() is Head.STOP_ROW else (21, 1)
    assert len(outcomes["min50-21"].requests["min50-21-a"].tokens) == late
    assert len(outcomes["empty50"].requests["empty50"].tokens) == empty


def test_what_clients_send_changes_nothing(stages: Stages) -> None:
    cases = [*scenarios.client_sampling(), *scenarios.logprobs()]
    stages.compare(StageShape(frames=4), cases)


@pytest.mark.parametrize("frames", [4, 16])
def test_a_lone_request_takes_few_steps(stages: Stages, frames: int) -> None:
    outcome = stages.compare(StageShape(frames=frames), scenarios.batches((1,)))["batch1"]
    tokens = len(outcome.requests["batch1-0"].tokens)
    steps = sum(1 for step in outcome.steps if step.widths)
    assert steps <= -(-(tokens - 1) // frames) + 2


@pytest.mark.parametrize("frames", [8])
def test_a_batch_of_four_stays_engaged(
    stages: Stages, frames: int, record_property: Callable[[str, object], None]
) -> None:
    cases = [scenarios.four_long_speakers()]
    outcome = stages.compare(StageShape(frames=frames), cases)["four"]
    last_admission = max(i for i, step in enumerate(outcome.steps) if step.prefill)
    first_finish = min(i for i, step in enumerate(outcome.steps) if step.finished)
    counted = [
        step
        for step in outcome.steps[last_admission + 1 : first_finish]
        if not step.prefill and not step.waiting and len(step.widths) >= 2
    ]
    engaged = sum(1 for step in counted if set(step.widths.values()) == {frames})
    record_property("engaged", f"{engaged} of {len(counted)}")
    print(f"K={frames}: {engaged} of {len(counted)} steps ran K frames")
    assert counted
    assert engaged >= 0.95 * len(counted)
