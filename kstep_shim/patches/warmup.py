"""Warm-up: leave out kernel warm-ups that fault on some parts and serve no armed Talker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target


def skip_by_part(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> None:
    """Skip a warm-up family that this part must not run; other stages warm up as usual."""
    _skip(wrapped, *args, **kwargs)


def _skip(wrapped: Callable[..., Any], name: str, warmup_fn: Any, worker: Any) -> None:
    from kstep_shim._logging import LOGGER
    from kstep_shim.frames.parts import part_name, skipped_warmups
    from kstep_shim.frames.schedule import draft_count

    part = part_name()
    if draft_count(worker.vllm_config) and name in skipped_warmups(part):
        LOGGER.info("kstep_shim: %s warm-up skipped on %s", name, part or "an unnamed part")
        return
    wrapped(name, warmup_fn, worker)


PATCH = Patch(
    name="warmup",
    summary="skip kernel warm-ups that an armed Talker does not use",
    targets=(
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.model_executor.warmup.kernel_warmup",
            qualname="_run_warmup",
            parameters=("name", "warmup_fn", "worker"),
            wrapper=skip_by_part,
            platform="npu",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The rejection and penalty kernels fault or stall on some parts; the verify needs neither.",
    how="Wraps the function that runs one warm-up family and looks at its name and the part's.",
    remove_when="vllm-ascend's warm-ups run on every part.",
)
