"""Failures from the field that are settled before a stage starts, and on its way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.refusal_cases import case, yaml
from support.stages import Stages

from kstep_shim.frames.hand_over import split_by_token


def long(value: object) -> Any:
    """A parameter for `make test-long` only."""
    return pytest.param(value, marks=pytest.mark.long)


@pytest.mark.parametrize("asked", [long(None), True, long(False)])
def test_field_report_13_drafts_are_scheduled_synchronously(
    stages: Stages, asked: bool | None
) -> None:
    found = stages.call(
        case(8, speculative_config=yaml(4), async_scheduling=asked, scheduler_cls=None)
    )
    assert (found["drafts"], found["async"]) == (3, False)
    assert "Async" not in found["scheduler"]


def test_field_report_13_one_frame_leaves_asynchronous_scheduling_on(stages: Stages) -> None:
    found = stages.call(case(1))
    assert (found["drafts"], found["async"]) == (None, True)


@pytest.mark.parametrize(
    "name",
    ["tensor_parallel_size", long("pipeline_parallel_size"), long("data_parallel_size")],
)
def test_field_report_19_parallel_stages_serve_one_frame(stages: Stages, name: str) -> None:
    found = stages.call(case(8, **{name: 2}))
    assert (found["drafts"], found["frames"], found["active"]) == (None, 1, False)
    assert f"{name}=2" in found["reason"]


def payload(codes: Any, tokens: int) -> dict[str, Any]:
    return {
        "codes.audio": codes,
        "hidden": torch.arange(float(tokens))[:, None],
        "meta.finished": torch.tensor(False),
    }


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_field_report_12_every_frame_once_and_in_order(count: int) -> None:
    codes = torch.arange(100, 100 + count)[:, None]
    parts = list(split_by_token(payload(codes, 4), 4))
    assert [part["hidden"].flatten().tolist() for part in parts] == [[0], [1], [2], [3]]
    spoken = [part["codes.audio"].flatten().tolist() for part in parts]
    assert spoken == [[100 + i] if i < count else [] for i in range(4)]
