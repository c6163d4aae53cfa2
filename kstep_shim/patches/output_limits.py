"""Output limits: tell the frame loop how many tokens each request may still produce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.patches.armed import armed


def add_remaining(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Add ``request_max_tokens_remaining``, one entry per request in batch order."""
    from kstep_shim.frames.limits import remaining_outputs
    from kstep_shim.frames.spans import REMAINING_KEY

    extras = wrapped(*args, **kwargs)
    if armed(runner):
        extras[REMAINING_KEY] = remaining_outputs(runner.input_batch, runner.requests)
    return extras


PATCH = Patch(
    name="output_limits",
    summary="pass each request's remaining output to the frame loop",
    targets=(
        Target(
            distribution="vllm-omni",
            module="vllm_omni.worker.gpu_model_runner",
            qualname="OmniGPUModelRunner._build_model_kwargs_extra",
            parameters=("self",),
            wrapper=add_remaining,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The engine cuts token ids at a limit inside the step, but not the codes sent onwards.",
    how="Adds a list beside the request spans; the frame tail freezes rows at their limit.",
    remove_when="the runner passes the remaining budget itself.",
)
