"""Where K comes from, and what is refused, in the real engine configuration."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusal_cases import case, yaml
from support.stages import Stages


def test_the_shim_supplies_k_and_synchronous_scheduling(stages: Stages) -> None:
    found = stages.call(case(8))
    assert found["drafts"] == 7
    assert found["async"] is False
    assert found["scheduler"] == "OmniARScheduler"
    assert (found["active"], found["frames"]) == (True, 8)


def test_the_yaml_wins(stages: Stages) -> None:
    found = stages.call(case(8, speculative_config=yaml(4)))
    assert found["drafts"] == 3
    assert (found["frames"], found["source"]) == (4, "yaml")


def test_another_stage_is_not_touched(stages: Stages) -> None:
    found = stages.call(case(8, model_stage="llm"))
    assert found["drafts"] is None
    assert found["async"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculative_config": yaml(17)}, "17 frames"),
        ({"speculative_config": {**yaml(4), "method": "suffix"}}, "method='suffix'"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2"),
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size=2"),
        ({"data_parallel_size": 2}, "data_parallel_size=2"),
        ({"enable_prefix_caching": True}, "enable_prefix_caching"),
        ({"enable_lora": True}, "enable_lora"),
        (
            {"stage_connector_spec": {"name": "x", "extra": {"codec_chunk_frames": 5}}},
            "codec_chunk_frames=5",
        ),
    ],
)
def test_a_refusal_serves_one_frame_per_step(
    stages: Stages, changes: dict[str, Any], words: str
) -> None:
    found = stages.call(case(8, **changes))
    assert found["drafts"] is None
    assert found["async"] is True
    assert (found["active"], found["frames"]) == (False, 1)
    assert words in found["reason"]


def test_strict_makes_a_refusal_an_error(stages: Stages) -> None:
    strict = {"KSTEP_SHIM_STRICT": "1"}
    found = stages.call(case(None, strict | {"KSTEP_SHIM": "1"}, enable_prefix_caching=True))
    assert found["error"].startswith("KStepError")
    assert "enable_prefix_caching" in found["error"]


def test_the_environment_alone_arms_through_the_plug_in(stages: Stages) -> None:
    found = stages.call(case(None, {"KSTEP_SHIM": "1", "KSTEP_SHIM_FRAMES": "5"}))
    assert (found["drafts"], found["frames"]) == (4, 5)


def test_switched_off_changes_nothing(stages: Stages) -> None:
    found = stages.call(case(None))
    assert (found["drafts"], found["async"], found["active"]) == (None, True, False)


def test_an_explicit_zero_vetoes(stages: Stages) -> None:
    found = stages.call(case(8, {"KSTEP_SHIM": "0"}))
    assert (found["drafts"], found["active"]) == (None, False)
    assert "KSTEP_SHIM=0" in found["reason"]


@pytest.mark.parametrize("value", ["0", "17", "-1", "eight"])
def test_a_bad_value_in_the_environment_serves_one_frame(stages: Stages, value: str) -> None:
    found = stages.call(case(None, {"KSTEP_SHIM": "1", "KSTEP_SHIM_FRAMES": value}))
    assert (found["drafts"], found["active"]) == (None, False)
