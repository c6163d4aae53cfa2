"""The modules which stand for those of the device's software."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from softnpu import operators, runtime, tape
from softnpu.missing import Missing, add_module

_FORMAT_ND = 2


class _Options:
    """Takes every attribute, at any depth, as the options of a compiler do."""

    def __getattr__(self, name: str) -> _Options:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Options()
        object.__setattr__(self, name, value)
        return value


class _ProcessGroupHCCL:
    """Stands for the process group, of which only the options are used."""

    class Options:
        """Options of a process group, which gloo does not take."""

        hccl_config: Any = None


def _eager_backend(compiler_config: object = None, **options: object) -> Callable[..., Any]:
    return lambda graph_module, example_inputs: graph_module


def _nothing(*args: object, **options: object) -> None:
    pass


def install() -> None:
    """Put the modules into ``sys.modules``."""
    npu = add_module("torch.npu", **runtime.npu_namespace())
    add_module(
        "torch_npu",
        __version__="2.10.0.post4",
        npu=npu,
        Generator=torch.Generator,
        npu_format_cast=lambda tensor, npu_format, **options: tensor,
        get_npu_format=lambda tensor: _FORMAT_ND,
        float4_e2m1fn_x2=296,
        hifloat8=290,
        float8_e8m0fnu=293,
        **operators.functions(),
    )
    sys.modules["torch_npu.npu"] = npu
    add_module(
        "torch_npu._C",
        _weak_ref_tensor=lambda tensor: tensor,
        _NPUTaskGroupHandle=tape.TaskGroup,
    )
    add_module("torch_npu._C._distributed_c10d", ProcessGroupHCCL=_ProcessGroupHCCL)
    add_module("torch_npu.op_plugin")
    add_module("torch_npu.op_plugin.atb")
    add_module("torch_npu.op_plugin.atb._atb_ops", _register_atb_extensions=_nothing)
    add_module("torch_npu.profiler")
    add_module("torch_npu.profiler.dynamic_profile", step=_nothing, init=_nothing)
    add_module("torch_npu._inductor")
    add_module("torch_npu.dynamo")
    add_module("torch_npu.utils")
    add_module(
        "torchair",
        CompilerConfig=_Options,
        get_npu_backend=_eager_backend,
        register_replacement=_nothing,
    )
    add_module("acl")
    add_module("acl.rt")
    add_module("mooncake")
    add_module("mooncake.engine", TransferEngine=Missing("mooncake.engine.TransferEngine"))
    version: Any = torch.version
    version.cann = "8.5.0"
