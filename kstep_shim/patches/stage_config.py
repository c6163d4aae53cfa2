"""Stage configuration: put K into stage 1's engine arguments, or take it out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.promised import promised, stock


def resolve_stage(wrapped: Callable[..., Any], arguments: Any, args: Any, kwargs: Any) -> Any:
    """Decide K in the process that makes the Talker's engine configuration.

    A refusal here leaves a stage that serves one frame per step, and one line that says why.

    Raises
    ------
    KStepError
        The stage cannot serve K frames and ``KSTEP_SHIM_STRICT`` is set.
    """
    from kstep_shim.frames import stage

    if stage.is_talker(arguments):
        _resolve(arguments)
    return wrapped(*args, **kwargs)


def _resolve(arguments: Any) -> None:
    from kstep_shim import installer
    from kstep_shim._logging import LOGGER
    from kstep_shim.errors import KStepError
    from kstep_shim.frames import stage

    shim = installer.current()
    report = shim.status()
    plan = stage.plan_stage(arguments, report.frames, report.source)
    refusal = plan.refusal
    if refusal is None and plan.frames > 1:
        from_yaml = plan.frames if arguments.speculative_config else None
        try:
            shim.seal(Side.HEAD, "head", arguments.stage_id, frames=from_yaml)
        except KStepError as error:
            refusal = str(error)
    if refusal is not None:
        arguments.speculative_config = None
        _name_classes(arguments, stock)
        shim.withdraw(refusal, role="head", stage=arguments.stage_id)
    elif plan.frames > 1:
        if arguments.async_scheduling:
            LOGGER.info(
                "kstep_shim: asynchronous scheduling and several frames per step exclude each "
                "other: stage 1 is scheduled synchronously"
            )
        stage.ask_for_frames(arguments, plan.frames)
        _name_classes(arguments, promised)
        for warning in stage.stage_warnings(arguments, plan.frames):
            LOGGER.warning("kstep_shim: %s", warning)


def _name_classes(arguments: Any, rename: Callable[[str], str]) -> None:
    for field in ("scheduler_cls", "worker_cls"):
        name = getattr(arguments, field)
        if isinstance(name, str):
            setattr(arguments, field, rename(name))


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
