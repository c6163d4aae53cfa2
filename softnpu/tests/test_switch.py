"""The switch: nothing happens without it."""

from __future__ import annotations

import pytest
import torch
from child import run_python

import softnpu
from softnpu import settings

_REPORT = """
import sys
before = set(sys.modules)
import softnpu
assert "torch" not in sys.modules
import torch
print(softnpu.is_active(), hasattr(torch, "npu"), "torch_npu" in sys.modules,
      "TRITON_INTERPRET" in __import__("os").environ, torch._C._get_privateuse1_backend_name(),
      torch.library.Library.impl.__module__, torch.Generator.__module__,
      torch._C._len_torch_function_stack(), "softnpu.activation" in sys.modules)
"""


@pytest.mark.parametrize("switch", ["", "0"])
def test_torch_is_untouched_without_the_switch(switch: str) -> None:
    report = run_python(_REPORT, SOFTNPU=switch).split()
    assert report == [
        "False", "False", "False", "False", "privateuseone", "torch.library", "torch._C", "0",
        "False",
    ]  # fmt: skip


def test_importing_torch_activates_with_the_switch() -> None:
    report = run_python(_REPORT).split()
    assert report == [
        "True", "True", "True", "True", "npu", "softnpu.library", "softnpu.generator", "1", "True",
    ]  # fmt: skip


def test_torchvision_comes_from_its_own_folder() -> None:
    code = "import torch, torchvision.ops; print(torchvision.__file__)"
    assert "softnpu-site" in run_python(code)


def test_settings_in_the_environment() -> None:
    code = """
import sys
import torch
print("/nowhere/at/all" in sys.path, torch.npu.get_device_name())
"""
    report = run_python(code, SOFTNPU_SITE="/nowhere/at/all", SOFTNPU_DEVICE_NAME="Ascend910_9392")
    assert report.split() == ["True", "Ascend910_9392"]


def test_the_name_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "device_name", settings.device_name)
    assert torch.npu.get_device_name() == "Ascend910B3"
    softnpu.set_device_name("Ascend910B4")
    assert torch.npu.get_device_name(0) == "Ascend910B4"
    assert torch.npu.get_device_properties(0).name == "Ascend910B4"


def test_custom_ops_may_return_an_argument_wherever_the_tests_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING", raising=False)
    code = """
import torch
from torch._functorch import config
print(config.error_on_custom_op_aliasing)
"""
    assert run_python(code, SOFTNPU="", CI="true").split() == ["True"]
    assert run_python(code, CI="true").split() == ["False"]
