"""The forward wrapper: when it engages, when it must not, and in which order it works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from kstep_shim.counters import counters
from kstep_shim.patches import model_forward

MEMBERS = (
    "batch_stop_logits",
    "take_batch_stop_logits",
    "set_batch_stop_logits",
    "merge_frame_outputs",
)


def runner(spans: list[tuple[int, int]], infos: list[dict[str, Any]], **members: Any) -> Any:
    model = SimpleNamespace(supports_multi_frame_decode=True, **dict.fromkeys(MEMBERS))
    extras = {"request_token_spans": spans, "model_intermediate_buffer": infos}
    widths = numpy.array([end - start for start, end in spans])
    return SimpleNamespace(
        num_spec_tokens=3,
        model=model,
        get_model=lambda: model,
        _omni_num_scheduled_tokens_np=widths,
        _build_model_kwargs_extra=lambda: extras,
        **members,
    )


def decode(step: int = 3) -> dict[str, Any]:
    return {"audio_state": {"step": step}, "_omni_is_prefill": False}


def stock(*args: Any, **kwargs: Any) -> str:
    return "stock"


def test_a_declined_multi_token_decode_is_an_error_and_counted() -> None:
    uneven = runner([(0, 4), (4, 5)], [decode(), decode()])
    with pytest.raises(RuntimeError, match="corrupt the codec stream"):
        model_forward.run_frames(stock, uneven, (5,), {})
    assert counters().get("backstop_reached") == 1


def test_a_prompt_of_several_tokens_takes_the_stock_path() -> None:
    prompt = runner([(0, 9)], [{"_omni_is_prefill": True}])
    assert model_forward.run_frames(stock, prompt, (9,), {}) == "stock"


def test_one_token_per_request_takes_the_stock_path_without_building_extras() -> None:
    single = runner([(0, 1), (1, 2)], [decode(), decode()])
    single._build_model_kwargs_extra = None
    assert model_forward.run_frames(stock, single, (2,), {}) == "stock"


def test_a_stage_without_drafts_is_not_looked_at() -> None:
    assert model_forward.run_frames(stock, SimpleNamespace(num_spec_tokens=0), (), {}) == "stock"


def test_a_model_without_the_flag_is_not_looked_at() -> None:
    thinker = SimpleNamespace(num_spec_tokens=5, get_model=SimpleNamespace)
    assert model_forward.run_frames(stock, thinker, (), {}) == "stock"
