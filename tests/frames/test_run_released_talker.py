"""``run`` around the released Talker's own ``preprocess`` and ``make_omni_output``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stack import EOS, HIDDEN, VOCAB, ToyEngine, ToyRequest, assert_same

from kstep_shim.frames.merge import merge_frame_outputs


@pytest.fixture(scope="module")
def talker_class() -> type:
    """The released Talker with the members that the shim adds, and weights of toy size."""
    module = pytest.importorskip(
        "vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni_tts"
    )
    base: Any = module.MiniCPMO45OmniTTSForConditionalGeneration

    class ReleasedTalker(base):  # type: ignore[misc]
        supports_multi_frame_decode = True

        def __init__(self, eos_bias: float = 0.0) -> None:
            torch.nn.Module.__init__(self)
            torch.manual_seed(3)
            self.emb_code = torch.nn.ModuleList([torch.nn.Embedding(VOCAB, HIDDEN).double()])
            self.head_code = torch.nn.ModuleList([torch.nn.Linear(HIDDEN, VOCAB).double()])
            with torch.no_grad():
                self.head_code[0].bias[EOS] += eos_bias
            self._batch_stop_logits = None
            self._request_generators: dict[str, torch.Generator] = {}
            self._request_audio_states: dict[str, Any] = {}
            self._num_audio_tokens = VOCAB
            self._codec_seed, self._codec_temperature = 42, 0.8
            self._codec_top_k, self._codec_top_p = 25, 0.85
            self._codec_repetition_penalty, self._codec_min_tokens = 1.05, 50
            self.draws: dict[str, int] = {}

        @property
        def batch_stop_logits(self) -> Any:
            return self._batch_stop_logits

        def take_batch_stop_logits(self) -> Any:
            rows, self._batch_stop_logits = self._batch_stop_logits, None
            return rows

        def set_batch_stop_logits(self, stop_rows: Any) -> None:
            self._batch_stop_logits = stop_rows

        def merge_frame_outputs(self, outputs: Any, stop_rows: Any) -> Any:
            return merge_frame_outputs(outputs, stop_rows, self.set_batch_stop_logits)

        @property
        def generators(self) -> dict[str, torch.Generator]:
            return self._request_generators

        def _sample_audio_code(self, hidden: Any, history: Any, request_id: str, step: int) -> Any:
            self.draws[request_id] = self.draws.get(request_id, 0) + 1
            return super()._sample_audio_code(hidden, history, request_id, step)

    return ReleasedTalker


REQUESTS = st.builds(
    ToyRequest,
    request_id=st.just(""),
    prompt=st.integers(1, 6),
    max_tokens=st.one_of(st.integers(1, 30), st.just(60)),
    codec_limit=st.integers(1, 40),
    codec_minimum=st.integers(0, 12),
    empty=st.sampled_from([False, False, False, True]),
    min_tokens=st.integers(0, 12),
)


@settings(max_examples=20, deadline=None)
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    frames=st.integers(2, 16),
    eos_bias=st.sampled_from([-2.0, 0.0, 1.0]),
)
def test_the_released_talker_gives_the_same_frames_draws_and_endings(
    talker_class: Any, requests: list[ToyRequest], frames: int, eos_bias: float
) -> None:
    engines = []
    for width in (frames, 1):
        copies = [
            replace(
                request,
                request_id=f"r{index}",
                max_tokens=max(request.max_tokens or 1, request.min_tokens),
                output_token_ids=[],
                codes=[],
                hidden=[],
            )
            for index, request in enumerate(requests)
        ]
        with torch.no_grad():
            engines.append(ToyEngine(copies, width, model=talker_class(eos_bias)).run())
    assert_same(*engines)


@pytest.mark.parametrize("limit", range(1, 10))
def test_a_limit_inside_the_step_spends_no_draw_of_the_released_talker(
    talker_class: Any, limit: int
) -> None:
    request = ToyRequest("a", max_tokens=limit, codec_limit=60, codec_minimum=60)
    engine = ToyEngine([request], 4, model=talker_class())
    with torch.no_grad():
        engine.run()
    assert request.reason == "length"
    assert len(request.codes) == engine.model.draws["a"] == limit
    assert engine.infos["a"]["audio_state"]["max_tokens"] == 60
