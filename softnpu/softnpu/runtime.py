"""The namespace ``torch.npu`` and its counterpart ``torch.accelerator``."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from softnpu import graph, settings, streams, tasks

_GIB = 1 << 30
_MEMORY = 64 * _GIB
_SOC_VERSION = 223  # Ascend910B3, the generation which the installed vllm-ascend was built for
_free = 60 * _GIB


class _DeviceContext:
    """``torch.npu.device``."""

    def __init__(self, device: object = None) -> None:
        pass

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def _nothing(*args: object, **options: object) -> None:
    pass


def _zero(*args: object, **options: object) -> int:
    return 0


def _one(*args: object, **options: object) -> int:
    return 1


def _true(*args: object, **options: object) -> bool:
    return True


def _mem_get_info(device: object = None) -> tuple[int, int]:
    # The memory profiling of vLLM asserts that free memory falls.
    global _free
    _free -= 1 << 20
    return _free, _MEMORY


def _memory_stats(*args: object, **options: object) -> dict[str, int]:
    return {"allocated_bytes.all.peak": 0, "allocated_bytes.all.current": 0}


def _properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=settings.device_name,
        total_memory=_MEMORY,
        cube_core_num=24,
        vector_core_num=48,
        multi_processor_count=24,
        uuid="softnpu",
        major=9,
        minor=0,
    )


def _autocast(dtype: torch.dtype | None = None, **options: Any) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype or torch.bfloat16)


def npu_namespace() -> dict[str, Any]:
    """Return the attributes of ``torch.npu``."""
    return {
        **dict.fromkeys(
            (
                "_lazy_init",
                "init",
                "set_device",
                "manual_seed",
                "manual_seed_all",
                "seed",
                "seed_all",
                "set_rng_state",
                "reset_peak_memory_stats",
                "reset_max_memory_allocated",
                "empty_cache",
                "host_empty_cache",
                "ipc_collect",
                "set_compile_mode",
                "set_option",
                "get_device_capability",
            ),
            _nothing,
        ),
        **dict.fromkeys(
            (
                "current_device",
                "initial_seed",
                "memory_allocated",
                "memory_reserved",
                "max_memory_allocated",
            ),
            _zero,
        ),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), _true),
        "_is_in_bad_fork": lambda: False,
        "device_count": _one,
        "get_rng_state": lambda *args, **options: torch.get_rng_state(),
        "get_device_properties": _properties,
        "get_device_name": lambda device=None: settings.device_name,
        "get_soc_version": lambda: _SOC_VERSION,
        "mem_get_info": _mem_get_info,
        "memory_stats": _memory_stats,
        "device": _DeviceContext,
        "Stream": streams.Stream,
        "Event": streams.Event,
        "stream": streams.stream,
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "synchronize": streams.synchronize,
        "ExternalEvent": tasks.ExternalEvent,
        "NPUGraph": graph.NPUGraph,
        "graph": graph.graph,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": graph.is_capturing,
        "graph_task_group_begin": tasks.group_begin,
        "graph_task_group_end": tasks.group_end,
        "graph_task_update_begin": tasks.update_begin,
        "graph_task_update_end": tasks.update_end,
        "amp": SimpleNamespace(autocast=_autocast, common=None),
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16, torch.float32],
        "config": SimpleNamespace(allow_internal_format=False),
        "matmul": SimpleNamespace(allow_hf32=False),
        "conv": SimpleNamespace(allow_hf32=False),
        "utils": SimpleNamespace(),
        "_C": SimpleNamespace(),
        "FloatTensor": torch.FloatTensor,
        "BoolTensor": torch.BoolTensor,
    }


def install_accelerator() -> None:
    """Make ``torch.accelerator`` speak of the npu."""
    functions: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(
            (
                "set_stream",
                "set_device_index",
                "set_device_idx",
                "empty_cache",
                "reset_peak_memory_stats",
            ),
            _nothing,
        ),
        **dict.fromkeys(
            (
                "current_device_index",
                "current_device_idx",
                "memory_allocated",
                "memory_reserved",
                "max_memory_allocated",
                "max_memory_reserved",
            ),
            _zero,
        ),
        "set_stream": streams.set_stream,
        "synchronize": streams.synchronize,
        "current_stream": streams.current_stream,
        "device_count": _one,
        "is_available": _true,
        "memory_stats": _memory_stats,
        "get_memory_info": _mem_get_info,
        "current_accelerator": lambda check_available=False: torch.device("npu"),
    }
    for name, function in functions.items():
        setattr(torch.accelerator, name, _distinct(function))


def _distinct(function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo registers handlers by function and refuses one which it knows by another name.
    return lambda *args, **options: function(*args, **options)
