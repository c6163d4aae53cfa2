"""Custom ops: kernels for the device type of the npu become kernels for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Op = Callable[..., Any]

_NAMESPACES = ("vllm", "vllm_ascend", "_C_ascend", "vllm_omni", "npu")

python_ops: dict[str, Op] = {}
"""Custom ops which Python code of the host implements, by qualified name."""

implement = torch.library.Library.impl
"""``Library.impl`` as torch made it."""


def activate(wrap: Op) -> None:
    """Take over the registration of kernels; ``wrap`` is applied to those for the npu."""

    def impl(
        self: torch.library.Library, op_name: Any, fn: Op, dispatch_key: str = "", **options: Any
    ) -> Any:
        if dispatch_key == "PrivateUse1" and self.ns in _NAMESPACES:
            dispatch_key = "CPU"
            fn = wrap(fn)
            name = op_name if isinstance(op_name, str) else op_name._schema.name
            name = name if "::" in name else f"{self.ns}::{name}"
            python_ops[name.partition(".")[0]] = fn
        return implement(self, op_name, fn, dispatch_key, **options)

    torch.library.Library.impl = impl
