"""``run``: K frames in one step are K single-frame steps, to the last bit and draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stack import INF, ToyEngine, ToyOutput, ToyRequest, assert_same

from kstep_shim import multi_frame
from kstep_shim.frames.tail import FrameStep


@pytest.fixture(autouse=True, scope="module")
def narrow_on_every_part() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSTEP_SHIM_NARROW", "on")
        yield


def both(
    requests: list[ToyRequest], frames: int, narrow: bool = False, eos_bias: float = 0.0
) -> tuple[ToyEngine, ToyEngine]:
    engines = []
    for width in (frames, 1):
        copies = [
            replace(request, output_token_ids=[], codes=[], hidden=[]) for request in requests
        ]
        engine = ToyEngine(copies, width, narrow=narrow and width > 1)
        engine.model.eos_bias = eos_bias
        engines.append(engine.run())
    return engines[0], engines[1]


REQUESTS = st.builds(
    ToyRequest,
    request_id=st.just(""),
    prompt=st.integers(1, 6),
    max_tokens=st.one_of(st.integers(1, 40), st.just(60)),
    codec_limit=st.integers(1, 40),
    codec_minimum=st.integers(0, 12),
    empty=st.sampled_from([False, False, False, True]),
    min_tokens=st.integers(0, 12),
)


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    frames=st.integers(2, 16),
    narrow=st.booleans(),
    eos_bias=st.sampled_from([-8.0, 0.0, 2.0]),
)
def test_a_run_of_many_steps_equals_single_frame_steps(
    requests: list[ToyRequest], frames: int, narrow: bool, eos_bias: float
) -> None:
    named = [
        replace(
            request,
            request_id=f"r{index}",
            max_tokens=max(request.max_tokens or 1, request.min_tokens, 1),
        )
        for index, request in enumerate(requests)
    ]
    assert_same(*both(named, frames, narrow, eos_bias))


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("stop", range(1, 9))
def test_stop_at_j_gives_j_plus_one_ids_and_no_later_codes(stop: int, narrow: bool) -> None:
    # The prefill is frame 1; the ceiling ends the codec at frame `stop + 1`, without its code.
    ours, oracle = both(
        [ToyRequest("a", codec_limit=stop + 1, codec_minimum=50, max_tokens=50)], 4, narrow
    )
    assert_same(ours, oracle)
    request = ours.all[0]
    assert request.output_token_ids == [0] * stop + [1]
    assert len(request.codes) == stop
    assert ours.model.draws["a"] == stop + 1


@pytest.mark.parametrize("limit", range(1, 10))
def test_request_limit_inside_a_step_delivers_and_draws_what_single_frames_do(limit: int) -> None:
    request = ToyRequest("a", max_tokens=limit, codec_limit=60, codec_minimum=60)
    ours, oracle = both([request], 4)
    assert_same(ours, oracle)
    assert ours.all[0].reason == "length"
    assert len(ours.all[0].codes) == ours.model.draws["a"] == limit
    assert ours.infos["a"]["audio_state"]["max_tokens"] == 60


def test_a_limit_counts_per_request_not_per_batch() -> None:
    requests = [
        ToyRequest(f"r{limit}", max_tokens=limit, codec_minimum=60) for limit in (3, 7, 60, 10)
    ]
    ours, oracle = both(requests, 8)
    assert_same(ours, oracle)


def test_a_finished_request_draws_nothing_while_its_minimum_keeps_it_alive() -> None:
    requests = [ToyRequest("empty", empty=True, min_tokens=20), ToyRequest("speaks", min_tokens=9)]
    ours, oracle = both(requests, 4)
    assert_same(ours, oracle)
    assert "empty" not in ours.model.draws
    assert ours.all[0].output_token_ids == [0] * 20 + [1]
    assert ours.all[0].codes == []


def test_k_frames_cost_k_forwards_and_k_after_forwards() -> None:
    ours, _ = both([ToyRequest("a", codec_minimum=60, max_tokens=13)], 4)
    assert ours.steps == 3
    assert ours.forwards == ours.after_forwards == 12


def test_narrow_steps_are_narrow_and_leave_the_wide_layout() -> None:
    ours, oracle = both([ToyRequest("a"), ToyRequest("b")], 4, narrow=True)
    assert_same(ours, oracle)
    assert ours.narrow_steps == ours.steps
    assert ours.graphs[2].selected[:4] == [0, 1, 2, 3]


class Recorder:
    """A model, a forward and a tail that write down what the loop asks of them."""

    supports_multi_frame_decode = True

    def __init__(self, rows: int, frames: int) -> None:
        self.rows, self.frames = rows, frames
        self.embeds = torch.zeros(rows * frames + 2, 2)
        self.ids = torch.arange(rows * frames + 2) + 100
        self.infos = [{"name": index, "audio_state": {"step": 1}} for index in range(rows)]
        self.log: list[Any] = []
        self.spans: list[Any] = []
        self.kwargs: list[dict[str, Any]] = []
        self.stop_rows: torch.Tensor | None = None
        self.reported: list[Any] = []
        self.frame = 0
        self.silent = False

    def preprocess(self, input_ids: Any, input_embeds: Any, **info: Any) -> Any:
        assert input_embeds is None
        self.log.append(("preprocess", info["name"], input_ids.tolist()))
        value = float(10 * info["name"] + self.frame)
        return input_ids, value + torch.tensor([[0.0, 0.0], [500.0, 500.0]]), {}

    def forward(self) -> torch.Tensor:
        self.log.append("forward")
        return self.embeds.clone()

    def after_forward(self) -> None:
        self.log.append("after")

    def make_omni_output(self, hidden: torch.Tensor, **kwargs: Any) -> ToyOutput:
        self.kwargs.append(kwargs)
        self.spans.append(kwargs["request_token_spans"])
        self.frame += 1
        deltas = [torch.tensor([[10 * row + self.frame]]) for row in range(self.rows)]
        flags = [torch.tensor(self.frame == 2)] * self.rows
        self.stop_rows = None if self.silent else torch.full((self.rows, 2), float(self.frame))
        return ToyOutput(hidden, {"codes": {"audio": deltas}, "meta": {"finished": flags}})

    def take_batch_stop_logits(self) -> torch.Tensor | None:
        rows, self.stop_rows = self.stop_rows, None
        self.reported.append(rows)
        return rows

    def merge_frame_outputs(self, outputs: Any, stop_rows: Any) -> Any:
        self.merged = (outputs, stop_rows)
        return outputs[-1]

    def run(self, **changes: Any) -> Any:
        arguments: dict[str, Any] = {
            "model": self,
            "run_model": self.forward,
            "after_forward": self.after_forward,
            "inputs_embeds": self.embeds,
            "input_ids": self.ids,
            "frames": self.frames,
            "model_kwargs": {"plain": 1},
            "model_kwargs_extra": {
                "request_token_spans": [
                    (row * self.frames, (row + 1) * self.frames) for row in range(self.rows)
                ],
                "model_intermediate_buffer": self.infos,
                "runtime_additional_information": self.infos,
            },
        }
        return multi_frame.run(**{**arguments, **changes})


def test_wide_rows_spans_and_order() -> None:
    toy = Recorder(rows=2, frames=3)
    toy.run()
    assert toy.spans == [[(0, 1), (3, 4)], [(1, 2), (4, 5)], [(2, 3), (5, 6)]]
    assert toy.log == [
        "forward",
        "after",
        ("preprocess", 0, [101]),
        ("preprocess", 1, [104]),
        "forward",
        "after",
        ("preprocess", 0, [102]),
        ("preprocess", 1, [105]),
        "forward",
        "after",
    ]
    # Row start + k holds frame k-1's code; the first row and the padding are not the loop's.
    assert toy.embeds[:, 0].tolist() == [0, 1, 2, 0, 11, 12, 0, 0]


def test_other_keyword_arguments_reach_every_frame() -> None:
    toy = Recorder(rows=1, frames=2)
    toy.run()
    for kwargs in toy.kwargs:
        assert kwargs["plain"] == 1
        assert kwargs["runtime_additional_information"] is toy.infos
        assert "request_sample_eligible" not in kwargs


def test_each_frame_hands_over_its_own_stop_rows() -> None:
    toy = Recorder(rows=2, frames=3)
    toy.run()
    outputs, stop_rows = toy.merged
    assert len(outputs) == 3
    assert [rows[0, 0].item() for rows in stop_rows] == [1.0, 2.0, 3.0]
    assert toy.stop_rows is None


@pytest.mark.parametrize("missing", ["inputs_embeds", "input_ids"])
def test_a_missing_buffer_is_an_error_before_any_frame(missing: str) -> None:
    toy = Recorder(rows=1, frames=2)
    with pytest.raises(RuntimeError, match=missing):
        toy.run(**{missing: None})
    assert toy.log == []


def test_no_stop_rows_is_an_error() -> None:
    toy = Recorder(rows=1, frames=2)
    toy.silent = True
    with pytest.raises(RuntimeError, match="no stop rows"):
        toy.run()


def test_a_forward_without_hidden_states_is_an_error() -> None:
    toy = Recorder(rows=1, frames=2)
    with pytest.raises(RuntimeError, match="ToyOutput"):
        toy.run(run_model=lambda: ToyOutput(torch.zeros(1)))


def test_a_row_past_its_limit_is_not_eligible_and_stops() -> None:
    toy = Recorder(rows=2, frames=3)
    extras = {
        "request_token_spans": [(0, 3), (3, 6)],
        "model_intermediate_buffer": toy.infos,
        "request_max_tokens_remaining": [2, None],
    }
    toy.run(model_kwargs_extra=extras)
    assert [kwargs.get("request_sample_eligible") for kwargs in toy.kwargs] == [
        None,
        None,
        [False, True],
    ]
    _, stop_rows = toy.merged
    assert toy.reported[2].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert stop_rows[2].tolist() == [[-INF, 0.0], [3.0, 3.0]]
    assert "request_sample_eligible" not in extras


def test_a_caller_s_own_eligibility_is_kept() -> None:
    toy = Recorder(rows=2, frames=2)
    extras = {
        "request_token_spans": [(0, 2), (2, 4)],
        "model_intermediate_buffer": toy.infos,
        "request_sample_eligible": [True, False],
        "request_max_tokens_remaining": [1, None],
    }
    toy.run(model_kwargs_extra=extras)
    assert [kwargs["request_sample_eligible"] for kwargs in toy.kwargs] == [
        [True, False],
        [False, False],
    ]


def test_a_tail_may_bring_the_next_embeddings() -> None:
    toy = Recorder(rows=2, frames=3)

    class Tail:
        def begin(self, step: FrameStep) -> None:
            self.step = step
            self.seen: list[list[int]] = []

        def frame(self, frame: int, hidden: torch.Tensor) -> torch.Tensor:
            self.seen.append(self.step.rows_at(frame))
            return torch.tensor([[7.0 + frame, 0.0], [17.0 + frame, 0.0]])

        def finish(self) -> str:
            return "merged"

    tail = Tail()
    assert toy.run(tail=tail) == "merged"
    assert tail.seen == [[0, 3], [1, 4], [2, 5]]
    assert toy.embeds[:, 0].tolist() == [0, 7, 8, 0, 17, 18, 0, 0]
    assert toy.log.count("forward") == 3
    assert not [entry for entry in toy.log if entry[0] == "preprocess"]


def test_the_loop_reads_no_device_value(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Recorder(rows=2, frames=3)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the loop read a tensor's value")

    class Tail:
        def begin(self, step: FrameStep) -> None: ...

        def frame(self, frame: int, hidden: torch.Tensor) -> torch.Tensor:
            return torch.zeros(2, 2)

        def finish(self) -> None: ...

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    toy.run(tail=Tail())
