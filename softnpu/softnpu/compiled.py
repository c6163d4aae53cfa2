"""The extension of vllm-ascend and the package ``fla_npu``, where they are not installed.

A binary release of vllm-ascend brings an extension which does not load here, and does without it. A
release built from source without kernels has none, and its layers want it.
"""

from __future__ import annotations

from types import ModuleType

import torch

from softnpu import import_hooks, operators
from softnpu.kernels import norms
from softnpu.missing import FakeModule, Missing

_NAMESPACE = "_C_ascend"
# Names which the stack looks up when it starts, for LoRA and to print while it debugs.
_REFUSED = {
    "bgmv_expand": "(Tensor! x, Tensor! weight, Tensor! indices, Tensor! y,"
    " int slice_offset, int slice_size) -> Tensor",
    "sgmv_expand": "(Tensor! x, Tensor! weight, Tensor! lora_indices, Tensor! seq_len, Tensor! y,"
    " int slice_offset, int slice_size) -> Tensor",
    "device_print": "(str msg) -> ()",
    "device_print_tensor": "(Tensor tensor) -> ()",
}
_libraries: list[torch.library.Library] = []


def activate() -> None:
    """Stand for what is not installed, when it is imported."""
    import_hooks.otherwise("vllm_ascend.vllm_ascend_C", _extension)
    for name in ("fla_npu", "fla_npu.ops", "fla_npu.ops.ascendc"):
        import_hooks.otherwise(name, FakeModule)


def _extension(name: str) -> ModuleType:
    operators.define(
        _NAMESPACE,
        {
            "npu_add_rms_norm_bias": (
                "(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-06)"
                " -> (Tensor, Tensor, Tensor)",
                norms.add_rms_norm_bias,
                lambda x, *others, **options: operators.shapes_of_add_rms_norm(x),
            )
        },
    )
    ops = torch.library.Library(_NAMESPACE, "FRAGMENT")
    _libraries.append(ops)
    _define_for_the_host(ops, "get_physical_device_id", "(int user_device_id) -> int", _the_same)
    for op, signature in _REFUSED.items():
        _define_for_the_host(ops, op, signature, Missing(f"{_NAMESPACE}.{op}"))
    # A plain module: without its allocator the stack goes on, as with one that does not load.
    return ModuleType(name)


def _define_for_the_host(
    ops: torch.library.Library, name: str, signature: str, function: operators.Kernel
) -> None:
    ops.define(name + signature)
    ops.impl(name, function, "CompositeExplicitAutograd")


def _the_same(user_device_id: int) -> int:
    return user_device_id
