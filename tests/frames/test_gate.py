"""Which steps run several frames."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from toy_stack import ToyTalker

from kstep_shim.frames.notices import Notices
from kstep_shim.multi_frame import applies, drafts_this_step, is_multi_token_decode

PREFILL = {"_omni_is_prefill": True}
OFF = SimpleNamespace(supports_multi_frame_decode=False)


def decoding(step: int = 5, finished: bool = False) -> dict[str, Any]:
    return {"_omni_is_prefill": False, "audio_state": {"step": step, "finished": finished}}


def extras(spans: Any, infos: Any = None) -> dict[str, Any]:
    if infos is None:
        infos = [decoding() for _ in spans]
    return {"request_token_spans": spans, "model_intermediate_buffer": infos}


@pytest.mark.parametrize(
    ("step", "frames", "multi"),
    [
        (extras([(0, 8), (8, 16)]), 8, True),
        (extras([(0, 8), (8, 9)]), 0, True),
        (extras([(0, 515), (515, 523)], [PREFILL, decoding()]), 0, True),
        (extras([(0, 1), (1, 2)]), 0, False),
        (extras([(0, 9), (9, 18)], [PREFILL, PREFILL]), 0, False),
        (extras([(0, 9), (9, 10)], [PREFILL, decoding()]), 0, False),
        (extras([(0, 8), (8, 16)], [PREFILL, decoding()]), 0, True),
        (extras([]), 0, False),
        ({}, 0, False),
        (extras([(0, 8)], []), 0, False),
        (extras([(0, 8)], [None]), 0, False),
        (extras([(0, 8)], [{}]), 0, True),
        (extras([(0, 8)], [decoding(step=0)]), 0, True),
        (extras([(0, 8), (8, 16)], [decoding(step=0, finished=True), decoding()]), 8, True),
    ],
    ids=[
        "uniform decode",
        "uneven decode",
        "prefill beside decode",
        "one token each",
        "wide prefills",
        "prefill beside one-token decode",
        "prefill as wide as the decode",
        "no requests",
        "no spans at all",
        "spans without buffers",
        "buffer is no dict",
        "no codec state",
        "no frame sampled yet",
        "empty speech",
    ],
)
def test_gate_matrix(step: dict[str, Any], frames: int, multi: bool) -> None:
    model = ToyTalker()
    assert applies(model, step) == frames
    assert is_multi_token_decode(model, step) is multi
    assert applies(OFF, step) == 0
    assert is_multi_token_decode(OFF, step) is False


def test_a_declined_multi_token_decode_always_has_a_logged_reason() -> None:
    for step in (
        extras([(0, 8), (8, 9)]),
        extras([(0, 1), (1, 9)]),
        extras([(0, 8)], [{}]),
        extras([(0, 8)], [decoding(step=0)]),
    ):
        notices = Notices()
        assert applies(ToyTalker(), step, notices) == 0
        assert notices.last_key is not None


def test_each_distinct_refusal_is_logged_once_per_owner(caplog: pytest.LogCaptureFixture) -> None:
    notices, model = Notices(), ToyTalker()
    with caplog.at_level(logging.INFO, logger="vllm.kstep_shim"):
        for _ in range(3):
            applies(model, extras([(0, 8), (8, 9)]), notices)
            applies(model, extras([(0, 8)], [{}]), notices)
        applies(model, extras([(0, 8), (8, 9)]), Notices())
    assert len(caplog.records) == 3
    assert notices.counts == {"uneven": 3, "no codec state": 3}
    assert "(8, 9)" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    "step",
    [extras([(0, 1)]), extras([(0, 8)], [PREFILL]), extras([(0, 9), (9, 10)], [PREFILL, None])],
)
def test_ordinary_steps_are_declined_silently(step: dict[str, Any]) -> None:
    notices = Notices()
    assert applies(ToyTalker(), step, notices) == 0
    assert not notices.counts


def test_the_last_reason_is_forgotten_when_a_step_applies() -> None:
    notices, model = Notices(), ToyTalker()
    applies(model, extras([(0, 8), (8, 9)]), notices)
    assert notices.last_key == "uneven"
    applies(model, extras([(0, 8)]), notices)
    assert notices.last_key is None


def runner(num_spec_tokens: int = 7, model: Any = None, **params: Any) -> Any:
    return SimpleNamespace(
        model=model or ToyTalker(),
        num_spec_tokens=num_spec_tokens,
        input_batch=SimpleNamespace(req_ids=["a", "b"]),
        requests={
            "a": SimpleNamespace(sampling_params=SimpleNamespace()),
            "b": SimpleNamespace(sampling_params=SimpleNamespace(**params)),
        },
    )


def test_drafts_come_from_the_runner_s_own_number() -> None:
    assert drafts_this_step(runner(7)) == 8
    assert drafts_this_step(runner(0)) == 0
    assert drafts_this_step(runner(7, model=OFF)) == 0
    assert drafts_this_step(SimpleNamespace()) == 0
    assert drafts_this_step(SimpleNamespace(model=ToyTalker(), num_spec_tokens=3)) == 4


@pytest.mark.parametrize(
    "option",
    [
        {"logprobs": 1},
        {"logprobs": 0},
        {"logprobs": -1},
        {"prompt_logprobs": 0},
        {"prompt_logprobs": -1},
        {"logprob_token_ids": [1]},
        {"structured_outputs": object()},
        {"repetition_detection": object()},
        {"stop_token_ids": [0, 1]},
        {"eos_token_id": 0},
    ],
)
def test_one_request_with_an_option_keeps_the_batch_at_one_frame(option: dict[str, Any]) -> None:
    notices = Notices()
    assert drafts_this_step(runner(7, **option), notices) == 0
    assert len(notices.counts) == 1


def test_ordinary_options_draft() -> None:
    ordinary = {"logprobs": None, "stop_token_ids": [1], "temperature": 2.0, "eos_token_id": None}
    assert drafts_this_step(runner(7, **ordinary)) == 8
