"""Runner: the moment when the worker decides, once, whether this stage runs K frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Head, Patch, Side, Target


def seal(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> None:
    """Make sure that every worker patch is in place before an armed Talker runner is built.

    vllm-ascend has applied its own worker patches by now.

    Raises
    ------
    KStepError
        A patch that the worker needs is missing; K positions are promised, so it must not start.
    """
    from kstep_shim import installer
    from kstep_shim.catalog import installed_head
    from kstep_shim.frames.processors import offer_every_processor
    from kstep_shim.frames.schedule import draft_count

    config = args[0] if args else kwargs["vllm_config"]
    drafts = draft_count(config)
    if drafts:
        stage = config.model_config.stage_id
        installer.current().seal(Side.WORKER, "worker", stage, frames=drafts + 1)
    wrapped(*args, **kwargs)
    if drafts and installed_head() is Head.CODEC:
        offer_every_processor(runner)


PATCH = Patch(
    name="runner",
    summary="seal the worker when the Talker's runner is built",
    targets=(
        Target(
            distribution="vllm-omni",
            module="vllm_omni.platforms.npu.worker.npu_ar_model_runner",
            qualname="NPUARModelRunner.__init__",
            parameters=("self",),
            wrapper=seal,
            before_seal=True,
            platform="npu",
        ),
        Target(
            distribution="vllm-omni",
            module="vllm_omni.worker.gpu_ar_model_runner",
            qualname="GPUARModelRunner.__init__",
            parameters=("self",),
            wrapper=seal,
            before_seal=True,
            platform="cuda",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="A half-armed worker would be given K positions and run one frame.",
    how="Checks all patches on the live objects, then opens the gate for this process.",
    remove_when="the other patches can go.",
)
