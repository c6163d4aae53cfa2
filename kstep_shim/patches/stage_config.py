"""Stage configuration: put K into stage 1's engine arguments, or take it out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target


def resolve_stage(wrapped: Callable[..., Any], arguments: Any, args: Any, kwargs: Any) -> Any:
    """Decide K in the process that makes the Talker's engine configuration.

    A refusal here leaves a stage that serves one frame per step, and one line that says why.

    Raises
    ------
    KStepError
        The stage cannot serve K frames and ``KSTEP_SHIM_STRICT`` is set, or the configuration
        that came out does not say what was put in.
    """
    from kstep_shim.frames import stage

    if stage.is_talker(arguments):
        _resolve(arguments)
    return wrapped(*args, **kwargs)


def _resolve(arguments: Any) -> None:
    from kstep_shim import installer
    from kstep_shim._logging import LOGGER
    from kstep_shim.frames import stage

    shim = installer.current()
    frames, source = shim.frames_and_source()
    plan = stage.plan_stage(arguments, frames, source)
    refusal = plan.refusal or (shim.refusal() if plan.requested > 1 else None)
    if refusal is None and plan.frames > 1:
        refusal = shim.try_seal_head(arguments.stage_id)
    if refusal is not None:
        arguments.speculative_config = None
        shim.refuse(f"stage {arguments.stage_id} serves one frame per step: {refusal}")
        return
    if plan.frames > 1:
        stage.ask_for_frames(arguments, plan.frames)
        shim.set_frames(plan.frames, plan.source)
        LOGGER.info(
            "kstep_shim: stage %s runs %d frames per step (from %s), synchronous scheduling",
            arguments.stage_id,
            plan.frames,
            plan.source,
        )
        for warning in stage.stage_warnings(arguments, plan.frames):
            LOGGER.warning("kstep_shim: %s", warning)


PATCH = Patch(
    name="stage_config",
    summary="supply or remove stage 1's speculative_config",
    targets=(
        Target(
            distribution="vllm",
            module="vllm.engine.arg_utils",
            qualname="EngineArgs.create_engine_config",
            parameters=("self", "usage_context", "headless"),
            wrapper=resolve_stage,
            before_seal=True,
        ),
    ),
    sides=frozenset({Side.HEAD}),
    why="K is a property of the engine configuration, which one process makes for all others.",
    how="Adjusts the Talker's arguments before vLLM reads them; other stages pass through.",
    remove_when="the deploy YAML's speculative_config works on the released stack.",
)
