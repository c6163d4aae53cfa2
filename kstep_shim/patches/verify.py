"""Verify: accept each request's frames up to its first stop row, and keep its minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.patches.armed import armed, flavour


def accept(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Accept the frames of an armed Talker's step as its head says; sample others as usual."""
    if not armed(runner):
        return wrapped(*args, **kwargs)
    return _accept(wrapped, runner, *args, **kwargs)


def _accept(
    wrapped: Callable[..., Any], runner: Any, logits: Any, spec_decode_metadata: Any
) -> Any:
    return flavour(runner).accept(wrapped, runner, logits, spec_decode_metadata)


PATCH = Patch(
    name="verify",
    summary="accept frames up to the first stop row, and keep min_tokens",
    targets=(
        Target(
            distribution="vllm-omni",
            module="vllm_omni.platforms.npu.worker.npu_ar_model_runner",
            qualname="NPUARModelRunner._sample",
            parameters=("self", "logits", "spec_decode_metadata"),
            wrapper=accept,
            platform="npu",
        ),
        Target(
            distribution="vllm-omni",
            module="vllm_omni.worker.gpu_ar_model_runner",
            qualname="GPUARModelRunner._sample",
            parameters=("self", "logits", "spec_decode_metadata"),
            wrapper=accept,
            platform="cuda",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The stock rejection path masks stops by a count that lags inside a K-frame step.",
    how="Argmax over continue/stop, first stop wins, a stop below min_tokens reads as continue.",
    remove_when="vllm-omni verifies stop rows by itself.",
)
