"""What each NPU part goes without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kstep_shim.frames.parts import narrow_allowed, part_name, skipped_warmups

BLOCKED = ["ascend910_93", "Ascend910_9382", "ascend910c", "Ascend910B", "Ascend910B3"]
ALLOWED = ["", "Ascend910A", "Ascend310P3", "Ascend950", "NVIDIA H200"]


@pytest.mark.parametrize("part", BLOCKED)
def test_blocked_parts(part: str) -> None:
    assert not narrow_allowed(part)
    assert narrow_allowed(part, "on")


@pytest.mark.parametrize("part", ALLOWED)
def test_other_and_unidentified_parts_are_allowed(part: str) -> None:
    assert narrow_allowed(part)
    assert narrow_allowed(part, "")
    assert not narrow_allowed(part, "off")


def test_a_wrong_setting_is_an_error() -> None:
    with pytest.raises(ValueError, match="KSTEP_SHIM_NARROW='yes'"):
        narrow_allowed("", "yes")


def test_the_environment_beats_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(get_device_name=lambda: "Ascend910B3")
    monkeypatch.setattr(torch, "npu", device, raising=False)
    assert part_name({}) == "ascend910b3"
    assert part_name({"ASCEND_SOC_VERSION": "Ascend950"}) == "ascend950"
    assert part_name({"ASCEND_SOC_VERSION": "x", "SOC_VERSION": " Ascend910C "}) == "ascend910c"
    assert part_name({"SOC_VERSION": ""}) == "ascend910b3"


def test_a_device_without_a_name_is_unidentified(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device() -> Any:
        raise RuntimeError("no device")

    monkeypatch.setattr(torch, "npu", SimpleNamespace(get_device_name=no_device), raising=False)
    assert part_name({}) == ""
    monkeypatch.setattr(torch, "npu", None, raising=False)
    assert part_name({}) == ""


@pytest.mark.parametrize(
    ("part", "armed", "skipped"),
    [
        ("ascend910b1", True, {"rejection_sampler"}),
        ("Ascend910B3", False, set()),
        ("ascend910_9391", True, {"penalties", "rejection_sampler"}),
        ("ascend910c", False, {"penalties", "rejection_sampler"}),
        ("", True, {"penalties", "rejection_sampler"}),
    ],
)
def test_warmups(part: str, armed: bool, skipped: set[str]) -> None:
    assert skipped_warmups(part, armed) == skipped
