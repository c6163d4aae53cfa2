"""Triton kernels, run by Triton's own interpreter.

There is no Triton driver, so vllm-ascend takes its torch fall-backs, except where it has none.
The modules named here get the real Triton, whose interpreter works on the memory of the host.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from softnpu import import_hooks, tasks

_MODULES = ("vllm_ascend.ops.triton.compute_slot_mapping",)


def activate() -> None:
    """Interpret the kernels of the modules which have no fall-back."""
    # Triton reads it when it is imported.
    os.environ["TRITON_INTERPRET"] = "1"
    for name in _MODULES:
        interpret(name)


def interpret(module_name: str) -> None:
    """Let the kernels of a module, which is not imported yet, run in the interpreter."""
    import_hooks.around(module_name, _with_real_triton)


def _with_real_triton(execute: import_hooks.Execute, module: ModuleType) -> None:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
    import vllm.triton_utils as utils
    from triton.runtime.interpreter import GridExecutor  # type: ignore[import-untyped]

    if GridExecutor.__call__ is not _launch:
        _interpreted.append(GridExecutor.__call__)
        GridExecutor.__call__ = _launch
    placeholders = utils.triton, utils.tl
    utils.triton, utils.tl = triton, tl
    try:
        execute(module)
    finally:
        utils.triton, utils.tl = placeholders


_interpreted: list[Any] = []


def _launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a Triton kernel as a kernel of the device."""
    return tasks.run_kernel(_interpreted[0], (executor, *args), kwargs)
