"""Failures from the field under real traffic: each request must equal itself alone at K=1."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support import stress_run
from support.report_cases import FAULTS, Faulted, in_process_steps, serve_until_fault
from support.stages import Stages
from support.stress import Stress
from support.stress_plan import Traffic, Visit

from kstep_shim.demo.scenario import RequestSpec, StageShape

NO_EOS = 10_000


def long(*values: object) -> Any:
    """A parameter for `make test-long` only."""
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def stress(stages: Stages) -> Stress:
    return Stress(stages)


def speakers(count: int, end: int = 60) -> list[Visit]:
    """`count` requests that arrive one step apart and speak for long."""
    return [
        Visit(RequestSpec(f"s{i}", condition=6 + i, eos_frame=end + 3 * i), arrival=i)
        for i in range(count)
    ]


@pytest.mark.parametrize("threshold", [long(0), 16])
def test_field_report_07_prompt_tails_beside_decodes(stress: Stress, threshold: int) -> None:
    prompts = [
        Visit(RequestSpec(f"p{total}", condition=total - 2, eos_frame=9), arrival=6 + 12 * i)
        for i, total in enumerate((52, 53, 65, 117))
    ]
    shape = StageShape(
        frames=4,
        max_num_batched_tokens=64,
        engine_args={"long_prefill_token_threshold": threshold},
    )
    verdict = stress.check(Traffic(shape, (*speakers(3, end=70), *prompts)))
    chunked = [s for s in verdict.result.spoken.values() if len(s.chunks) > 1]
    assert chunked


@pytest.mark.parametrize("budget", [13, long(10), long(5), long(3)])
def test_field_report_08_a_budget_that_clips(stress: Stress, budget: int) -> None:
    rows = min(4, budget)
    shape = StageShape(frames=4, max_num_batched_tokens=budget, max_num_seqs=rows)
    stress.check(Traffic(shape, tuple(speakers(4, end=20))))


@pytest.mark.parametrize(
    "pair", [(12, 13), long((14, 15)), long((13, 15)), long((12, 15))], ids=str
)
def test_field_report_10_preemption_ends_one_request_only(
    stress: Stress, pair: tuple[int, int]
) -> None:
    shape = StageShape(frames=4, max_model_len=256, engine_args={"num_gpu_blocks_override": 4})
    visits = [
        Visit(RequestSpec(f"pre{c}", condition=c, min_tokens=0, eos_frame=130), arrival=i)
        for i, c in enumerate(pair)
    ]
    verdict = stress.check(Traffic(shape, tuple(visits)))
    preempted = [s for s in verdict.result.spoken.values() if s.preempted]
    assert len(preempted) == 1
    assert str(preempted[0].outcome.stop_reason).startswith("preempted: the KV cache")
    assert 60 < len(preempted[0].outcome.tokens) < 130


@pytest.mark.parametrize("frames", [long(2), long(4), 6])
def test_field_report_02_preemption_in_traffic(stress: Stress, frames: int) -> None:
    shape = StageShape(frames=frames, max_model_len=256, engine_args={"num_gpu_blocks_override": 6})
    visits = [
        Visit(RequestSpec(f"q{i}", condition=14 + i, min_tokens=0, eos_frame=125), arrival=2 * i)
        for i in range(4)
    ]
    verdict = stress.check(Traffic(shape, tuple(visits)))
    assert [s.preempted for s in verdict.result.spoken.values()].count(True) >= 1


def leaving(count: int, apart: int = 2) -> tuple[Visit, ...]:
    """Every second client leaves, at each offset of a step, some before the first frame."""
    points = ("before", "scheduled", "executing", "updated", "after")
    return tuple(
        Visit(
            RequestSpec(f"c{i}", condition=3 + i % 5, min_tokens=0, eos_frame=30 + i % 4),
            arrival=apart * i,
            abort_after=(0, 1, 2, 3, 5)[i % 5] if i % 2 else None,
            abort_point=points[i // 2 % 5],
        )
        for i in range(count)
    )


def test_field_report_15_nothing_stays_of_clients_that_left(stages: Stages, stress: Stress) -> None:
    # Far enough apart for everybody to be served at once, at K=1 too.
    traffic = Traffic(StageShape(frames=4), leaving(12, apart=10))
    stock = Traffic(StageShape(), leaving(12, apart=10))
    left = stress.check(traffic).result.leftovers
    kept = stages.call(partial(stress_run.run_plan, stock)).leftovers
    assert {place: count for place, count in left.items() if count > kept.get(place, 0)} == {}


@pytest.mark.long
def test_field_report_15_memory_stays_flat(stages: Stages) -> None:
    traffic = Traffic(StageShape(frames=4), leaving(2000))
    resident = stages.call(partial(stress_run.resident_memory, traffic), timeout=3600.0)
    growth = resident[2000] / resident[500] - 1
    print(f"resident memory grew {100 * growth:.2f} % between request 500 and 2,000")
    assert growth < 0.02


@pytest.mark.parametrize(("frames", "chunk"), [long(2, 25), long(4, 8), long(8, 25), (8, 8)])
def test_field_report_17_the_first_packet(stress: Stress, frames: int, chunk: int) -> None:
    shape = StageShape(frames=frames, chunk_frames=chunk)
    verdict = stress.check(Traffic(shape, tuple(speakers(4, end=35))))
    for spoken in verdict.result.spoken.values():
        first = min(tokens for tokens, sent in spoken.sent.items() if sent)
        assert chunk <= first < chunk + frames


def test_field_report_14_drafts_are_taken_in_process(stages: Stages) -> None:
    steps, tokens = stages.call(in_process_steps)
    assert tokens == 100
    assert steps <= 27


@pytest.mark.parametrize("fault", [name for name in FAULTS if not name.startswith("long")])
def test_faults_stop_the_stage_and_send_nothing_twice(stages: Stages, fault: str) -> None:
    check_fault(stages, fault)


@pytest.mark.long
@pytest.mark.parametrize("fault", [name for name in FAULTS if name.startswith("long")])
def test_faults_in_every_frame(stages: Stages, fault: str) -> None:
    check_fault(stages, fault)


def check_fault(stages: Stages, fault: str) -> None:
    found: Faulted = stages.call(partial(serve_until_fault, 4, fault))
    assert FAULTS[fault].message in found.error
    spoken: Faulted = stages.call(partial(serve_until_fault, 1, None))
    assert spoken.error == ""
    for name, outcome in found.requests.items():
        whole = spoken.requests[name]
        assert outcome.tokens
        assert outcome.codes == whole.codes[: len(outcome.codes)]
        assert len(outcome.codes) == len(outcome.tokens)
        assert outcome.payloads == whole.payloads[: len(outcome.payloads)]
