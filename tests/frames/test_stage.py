"""What stage 1's engine arguments may ask for, and what is refused before serving starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstep_shim.frames import stage

ASYNC = "vllm_omni.core.sched.omni_ar_scheduler.OmniARAsyncScheduler"
SYNC = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"


def arguments(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "model_stage": "tts",
        "model_arch": "MiniCPMO45OmniForConditionalGeneration",
        "speculative_config": None,
        "stage_connector_spec": {"extra": {"codec_chunk_frames": 25}},
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "enable_prefix_caching": False,
        "enable_lora": False,
        "additional_config": None,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8192,
        "async_scheduling": True,
        "scheduler_cls": ASYNC,
    }
    return SimpleNamespace(**{**values, **changes})


def ngram(count: Any, method: str = "ngram") -> dict[str, Any]:
    return {"method": method, "num_speculative_tokens": count}


def test_the_shim_supplies_k_where_the_yaml_has_none() -> None:
    plan = stage.plan_stage(arguments(), 8, "KSTEP_SHIM_FRAMES")
    assert (plan.frames, plan.source, plan.refusal) == (8, "KSTEP_SHIM_FRAMES", None)


def test_the_yaml_wins() -> None:
    plan = stage.plan_stage(arguments(speculative_config=ngram(3)), 8, "KSTEP_SHIM_FRAMES")
    assert (plan.frames, plan.source) == (4, "the deploy YAML")


def test_one_frame_asks_for_nothing() -> None:
    plan = stage.plan_stage(arguments(), 1, "KSTEP_SHIM_FRAMES")
    assert (plan.frames, plan.refusal) == (1, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculative_config": ngram(16)}, "17 frames per step"),
        ({"speculative_config": ngram(3, "eagle")}, "method='eagle'"),
        ({"speculative_config": ngram("three")}, "num_speculative_tokens='three'"),
        ({"speculative_config": ngram(0)}, "num_speculative_tokens=0"),
        ({"stage_connector_spec": {"extra": {"codec_chunk_frames": 7}}}, "codec_chunk_frames=7"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2"),
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size=2"),
        ({"data_parallel_size": 2}, "data_parallel_size=2"),
        ({"enable_prefix_caching": True}, "enable_prefix_caching=True"),
        ({"enable_prefix_caching": None}, "enable_prefix_caching=None"),
        ({"enable_lora": True}, "enable_lora=True"),
        ({"logits_processors": ["mine.Processor"]}, "logits_processors=['mine.Processor']"),
        ({"additional_config": {"enable_flashcomm1": True}}, "enable_flashcomm1"),
    ],
)
def test_what_cannot_be_served_is_refused_and_named(changes: dict[str, Any], words: str) -> None:
    plan = stage.plan_stage(arguments(**changes), 8, "KSTEP_SHIM_FRAMES")
    assert plan.frames == 1
    assert plan.refusal is not None
    assert words in plan.refusal


def test_a_window_of_k_frames_is_enough() -> None:
    spec = {"extra": {"codec_chunk_frames": 8}}
    assert stage.plan_stage(arguments(stage_connector_spec=spec), 8, "").frames == 8


def test_k_goes_in_with_synchronous_scheduling() -> None:
    asked = arguments()
    stage.ask_for_frames(asked, 8)
    assert asked.speculative_config["method"] == "ngram"
    assert asked.speculative_config["num_speculative_tokens"] == 7
    assert asked.async_scheduling is False
    assert asked.scheduler_cls == SYNC


def test_what_the_yaml_says_stays() -> None:
    asked = arguments(speculative_config={**ngram(3), "prompt_lookup_max": 2})
    stage.ask_for_frames(asked, 4)
    assert asked.speculative_config == {**ngram(3), "prompt_lookup_max": 2}


@pytest.mark.parametrize(("budget", "warned"), [(32, False), (31, True)])
def test_a_budget_below_rows_times_k_is_a_warning(budget: int, warned: bool) -> None:
    warnings = stage.stage_warnings(arguments(max_num_batched_tokens=budget), 8)
    assert bool(warnings) is warned


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"model_stage": "llm"}, False),
        ({"model_arch": "Qwen3TTSTalkerForConditionalGeneration"}, False),
    ],
)
def test_only_this_talker_is_meant(changes: dict[str, Any], expected: bool) -> None:
    assert stage.is_talker(arguments(**changes)) is expected
