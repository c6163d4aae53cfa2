"""Draft metadata: where the logits of a K-frame step are, kept from the last such step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.patches.armed import armed

_KEPT = "_kstep_shim_draft_metadata"


def keep(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Return what the last step with as many requests got, where all of them are K-wide.

    Where the logits are depends on the number of requests alone then. The draft ids in it are those
    of that first step, which nobody looks at: the frames say what was drawn.
    """
    if not armed(runner):
        return wrapped(*args, **kwargs)
    return _keep(wrapped, runner, *args, **kwargs)


def _keep(
    wrapped: Callable[..., Any], runner: Any, num_draft_tokens: Any, cu_num_scheduled_tokens: Any
) -> Any:
    rows, width = len(num_draft_tokens), runner.num_spec_tokens + 1
    uniform = (num_draft_tokens == width - 1).all()
    if not uniform or cu_num_scheduled_tokens[-1] != rows * width:
        return wrapped(num_draft_tokens, cu_num_scheduled_tokens)
    kept: dict[int, Any] = vars(runner).setdefault(_KEPT, {})
    if rows not in kept:
        kept[rows] = wrapped(num_draft_tokens, cu_num_scheduled_tokens)
    return kept[rows]


def _target(distribution: str, module: str, runner: str, platform: str) -> Target:
    return Target(
        distribution=distribution,
        module=module,
        qualname=f"{runner}._calc_spec_decode_metadata",
        parameters=("self", "num_draft_tokens", "cu_num_scheduled_tokens"),
        wrapper=keep,
        platform=platform,
    )


PATCH = Patch(
    name="draft_metadata",
    summary="compute the constant metadata of K-wide steps once per number of requests",
    targets=(
        _target("vllm-ascend", "vllm_ascend.worker.model_runner_v1", "NPUModelRunner", "npu"),
        _target("vllm", "vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "cuda"),
    ),
    sides=frozenset({Side.WORKER}),
    why="The stock runner uploads the same five index lists on every step: 0.2 ms on an H200.",
    how="Keeps the first result for each number of requests.",
    remove_when="the stack drafts several frames without uploads per step.",
    required=False,
)
