"""The functions of ``torch_npu``: the kernels, tied to graphs and counters."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from softnpu import counters, library, tasks
from softnpu.kernels import attention, cache, linear, norms, rotary, sampling

Kernel = Callable[..., Any]

_libraries: list[torch.library.Library] = []


_HOST_ARGUMENTS = ("actual_seq_lengths", "actual_seq_lengths_kv", "context_lens")


def opaque(name: str, function: Kernel) -> Kernel:
    """Make a kernel one entry of a graph, whatever torch ops it runs."""

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        counters.kernels.add(name)
        for argument in _HOST_ARGUMENTS:
            # The device takes these by value, when the kernel is issued.
            if isinstance(kwargs.get(argument), torch.Tensor):
                kwargs[argument] = kwargs[argument].tolist()
        return tasks.run_kernel(function, args, kwargs)

    return kernel


def matmul_add_fp32(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Add the product of ``x`` transposed and the weight, in fp32."""
    out.add_(x.float().t() @ weight.float())


class FusedInferAttentionScore:
    """``npu_fused_infer_attention_score`` and its ``out`` form."""

    def __init__(self) -> None:
        name = "npu_fused_infer_attention_score"
        self.default = opaque(name, attention.fused_infer_attention_score)
        self.out = opaque(f"{name}.out", attention.fused_infer_attention_score_out)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)


def functions() -> dict[str, Any]:
    """Return the kernels as attributes of ``torch_npu``."""
    opaque_kernels: dict[str, Kernel] = {
        "_npu_rotary_embedding": rotary.rotary_embedding,
        "npu_rotary_mul": rotary.rotary_mul,
        "npu_mrope": rotary.mrope,
        "npu_scatter_pa_kv_cache": cache.scatter_pa_kv_cache,
        "_npu_reshape_and_cache": cache.reshape_and_cache,
        "_npu_paged_attention": attention.paged_attention,
        "npu_top_k_top_p": sampling.top_k_top_p,
        "_npu_matmul_add_fp32": matmul_add_fp32,
    }
    return {
        **{name: opaque(name, kernel) for name, kernel in opaque_kernels.items()},
        **_define_compiled_ops(),
        "npu_fused_infer_attention_score": FusedInferAttentionScore(),
        "_npu_fused_infer_attention_score_get_max_workspace": attention.workspace,
        "_npu_paged_attention_get_workspace": attention.workspace,
    }


def _define_compiled_ops() -> dict[str, Any]:
    """Define the kernels which compiled code calls: real ops, which dynamo does not trace into."""
    definitions: dict[str, tuple[str, Kernel, Kernel]] = {
        "npu_rms_norm": (
            "(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
            norms.rms_norm,
            lambda x, gamma, epsilon=1e-6: (torch.empty_like(x), _rstd(x)),
        ),
        "npu_add_rms_norm": (
            "(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
            norms.add_rms_norm,
            lambda x, y, gamma, epsilon=1e-6: shapes_of_add_rms_norm(x),
        ),
        "npu_swiglu": (
            "(Tensor self, int dim=-1) -> Tensor",
            norms.swiglu,
            lambda x, dim=-1: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)),
        ),
    }
    define("npu", definitions)
    return {name: getattr(torch.ops.npu, name) for name in definitions}


def define(namespace: str, definitions: Mapping[str, tuple[str, Kernel, Kernel]]) -> None:
    """Define ops by signature, kernel and, for their shapes, a function on meta tensors."""
    ops = torch.library.Library(namespace, "DEF")
    _libraries.append(ops)
    for name, (signature, kernel, meta) in definitions.items():
        ops.define(name + signature)
        library.implement(ops, name, _counted(name, kernel), "CPU")
        library.implement(ops, name, meta, "Meta")


def shapes_of_add_rms_norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return empty tensors like the results of the kernel, for the rows ``x``."""
    return torch.empty_like(x), _rstd(x), torch.empty_like(x)


def _rstd(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


def _counted(name: str, kernel: Kernel) -> Kernel:
    def counted(*args: Any, **kwargs: Any) -> Any:
        counters.kernels.add(name)
        return kernel(*args, **kwargs)

    return counted


def override_linear() -> None:
    """Make the matrix products of torch on the CPU independent of the batch."""
    ops = torch.library.Library("aten", "IMPL")
    _libraries.append(ops)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name, kernel in {
            "mm": linear.mm,
            "mm.out": linear.mm_out,
            "addmm": linear.addmm,
            "addmm_": linear.addmm_,
            "addmm.out": linear.addmm_out,
        }.items():
            library.implement(ops, name, kernel, "CPU", allow_override=True)
