"""One frame per step on the codec head: the released stack alone, without the shim."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import codec_oracle, repairs
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import Outcome, differences
from kstep_shim.demo.scenario import GraphMode, RequestSpec, Scenario, StageShape, staggered

EAGER = StageShape()
PIECEWISE = StageShape(mode=GraphMode.PIECEWISE)
FULL = StageShape(mode=GraphMode.FULL_DECODE_ONLY)
#: The released vocabulary, whose end is id 6561.
RELEASED = StageShape(codes=6562)
BATCHES = [staggered(size, name=f"batch{size}") for size in (1, 2, 4)]


def _assert_same(expected: dict[str, Outcome], actual: dict[str, Outcome]) -> None:
    for name, outcome in expected.items():
        assert differences(outcome, actual[name]) == []


def test_a_batch_changes_nothing_for_a_request(stages: Stages) -> None:
    served = stages.baseline(EAGER, BATCHES)
    for outcome in served.values():
        for request in outcome.requests.values():
            assert len(set(request.codes)) > 3
            # The code of a step is handed over by the next one: the last one never is.
            assert request.codes == request.tokens[:-1]
            assert len(request.hidden) == len(request.tokens)
    alone, among = served["batch1"].requests["batch1-0"], served["batch4"].requests["batch4-0"]
    assert (alone.codes, alone.draws) == (among.codes, among.draws)


def test_piecewise_graphs_equal_eager_mode(stages: Stages) -> None:
    _assert_same(stages.baseline(EAGER, BATCHES), stages.serve(PIECEWISE, BATCHES))


def test_full_graphs_equal_eager_mode_once_repaired(stages: Stages) -> None:
    full = stages.serve(FULL, BATCHES, prepare=repairs.name_graph_backend)
    _assert_same(stages.baseline(EAGER, BATCHES), full)


def test_full_graphs_of_the_released_stack_wait_for_ever(stages: Stages) -> None:
    with pytest.raises(StageError, match="graph which waits for an ExternalEvent"):
        stages.serve(FULL, BATCHES[:1])


def test_a_prompt_in_chunks_draws_no_more(stages: Stages) -> None:
    chunked = stages.serve(StageShape(max_num_batched_tokens=5), BATCHES[1:])
    for name, outcome in stages.baseline(EAGER, BATCHES[1:]).items():
        assert any(
            step.prefill and 1 < max(step.widths.values()) <= 5 for step in chunked[name].steps
        )
        for request_id, request in outcome.requests.items():
            got = chunked[name].requests[request_id]
            assert (got.codes, got.tokens, got.draws) == (
                request.codes,
                request.tokens,
                request.draws,
            )


@pytest.mark.parametrize("shape", [EAGER, RELEASED], ids=["64", "6562"])
def test_ends(stages: Stages, shape: StageShape) -> None:
    end = shape.codes - 1
    case = Scenario(
        "ends",
        (
            RequestSpec("limit", max_tokens=9, min_tokens=0, sampling={"logit_bias": {end: -100}}),
            RequestSpec("ceiling", condition=4, eos_frame=12),
            RequestSpec("drawn", condition=5, min_tokens=0, sampling={"logit_bias": {end: 3.0}}),
            RequestSpec("late", condition=6, min_tokens=20, sampling={"logit_bias": {end: 100.0}}),
            RequestSpec("empty", condition=0, min_tokens=0, arrival=2),
            RequestSpec("silent", condition=0, min_tokens=6, arrival=3),
        ),
    )
    requests = stages.baseline(shape, [case])["ends"].requests
    stopped = {name: request for name, request in requests.items() if name != "limit"}
    assert requests["limit"].finish_reason == "length"
    assert len(requests["limit"].tokens) == 9
    for request in stopped.values():
        assert (request.finish_reason, request.stop_reason) == ("stop", str(end))
        assert request.tokens[-1] == end
        assert request.codes == [token for token in request.tokens if token != end]
    assert len(requests["ceiling"].codes) == 11
    assert len(requests["late"].codes) == 20
    assert requests["empty"].codes == requests["silent"].codes == []


SAMPLING: dict[str, dict[str, Any]] = {
    "released": {},
    "greedy": {"temperature": 0.0},
    "warm": {"temperature": 1.3},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.2, "top_k": -1},
    "penalty": {"repetition_penalty": 2.0},
    "no_penalty": {"repetition_penalty": 1.0},
    "seed": {"seed": 7},
}


def test_sampling_parameters_act_but_for_top_k(stages: Stages) -> None:
    cases = [
        Scenario(
            name,
            (RequestSpec(f"{name}-a", max_tokens=40, min_tokens=40, sampling=options),),
        )
        for name, options in SAMPLING.items()
    ]
    served = stages.baseline(EAGER, cases)
    codes = {name: outcome.requests[f"{name}-a"].codes for name, outcome in served.items()}
    # The configuration of the Talker names no vocabulary: its batch takes it to be empty, and a
    # top-k above it for none.
    same = {name for name in SAMPLING if codes[name] == codes["released"]}
    assert same == {"released", "top_k"}


def test_requests_with_different_parameters_share_a_batch(stages: Stages) -> None:
    specs = [
        RequestSpec(f"mixed-{name}", max_tokens=30, min_tokens=6, arrival=i, sampling=options)
        for i, (name, options) in enumerate(SAMPLING.items())
    ]
    alone = [
        Scenario(spec.request_id, (RequestSpec(**{**vars(spec), "arrival": 0}),)) for spec in specs
    ]
    shape = StageShape(max_num_seqs=8)
    together = stages.baseline(shape, [Scenario("mixed", tuple(specs))])["mixed"]
    singly = stages.serve(shape, alone)
    for name, request in together.requests.items():
        expected = singly[name].requests[name]
        assert request.codes == expected.codes, name
        assert request.tokens == expected.tokens, name
        assert request.draws == expected.draws, name


def test_a_stage_speaks_as_an_independent_oracle(stages: Stages) -> None:
    outcome, predicted = stages.call(codec_oracle.serve_and_predict)
    for name, (tokens, hidden) in predicted.items():
        assert outcome.requests[name].tokens == tokens
        assert torch.allclose(torch.cat(outcome.requests[name].hidden), hidden, atol=1e-5)
