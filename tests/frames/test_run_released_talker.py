"""``run`` around the released Talker's own ``preprocess`` and ``make_omni_output``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stack import ToyEngine, ToyRequest, assert_same

from kstep_shim.frames.codec import Codec
from kstep_shim.frames.device_tail import DeviceTail, InvalidCodecRowError

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


def device_tail(model: Any, frames: int) -> DeviceTail:
    codec = Codec.of(model)
    assert codec is not None
    return DeviceTail(codec, rows=4, frames=frames)


@pytest.mark.parametrize("on_device", [False, True], ids=["stock tail", "device tail"])
@settings(max_examples=20, deadline=None)
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=4),
    frames=st.integers(2, 16),
    eos_bias=st.sampled_from([-2.0, 0.0, 1.0]),
)
def test_the_released_talker_gives_the_same_frames_draws_and_endings(
    talker_class: Any, requests: list[ToyRequest], frames: int, eos_bias: float, on_device: bool
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
        model = talker_class(eos_bias)
        tail = device_tail(model, frames) if on_device and width > 1 else None
        with torch.no_grad():
            engines.append(ToyEngine(copies, width, model=model, tail=tail).run())
    if on_device:
        # This tail does not go through the method that counts; the generators tell as well.
        for engine in engines:
            engine.model.draws.clear()
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


def test_the_device_tail_rejects_probabilities_that_are_not_finite(talker_class: Any) -> None:
    model = talker_class()
    request = ToyRequest("a", max_tokens=60, codec_limit=60, codec_minimum=60)
    engine = ToyEngine([request], 4, model=model)
    engine.tail = device_tail(model, 4)
    with torch.no_grad():
        engine.prefill(request)
        engine.step()
        before = list(request.codes)
        model.head_code[0].bias[3] = float("nan")
        with pytest.raises(InvalidCodecRowError, match="a"):
            engine.step()
    assert request.codes == before


def test_a_talker_of_another_kind_has_no_device_tail() -> None:
    assert Codec.of(torch.nn.Linear(2, 2)) is None
