"""Stage 1's engine configuration, made by the real classes with the shim armed."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.stage import engine_arguments, prepare_environment, speculative_config

ASYNC = "vllm_omni.core.sched.omni_ar_scheduler.OmniARAsyncScheduler"


def resolve(
    frames: int | None = 8, environment: dict[str, str] | None = None, **engine_args: Any
) -> dict[str, Any]:
    """What one stage resolves to, and what the shim says of it."""
    prepare_environment()
    os.environ.update(environment or {})
    import torch  # noqa: F401

    import kstep_shim

    if frames is not None:
        kstep_shim.install(frames=frames)
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    arguments = engine_arguments(StageShape(frames=8, shim=True))
    arguments |= {"async_scheduling": True, "scheduler_cls": ASYNC, **engine_args}
    try:
        config = OmniEngineArgs(**arguments).create_engine_config()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    report = kstep_shim.status()
    speculative = config.speculative_config
    return {
        "drafts": None if speculative is None else speculative.num_speculative_tokens,
        "async": config.scheduler_config.async_scheduling,
        "scheduler": config.scheduler_config.get_scheduler_cls().__name__,
        "active": report.active,
        "frames": report.frames,
        "source": report.source,
        "reason": report.reason,
    }


def case(*arguments: Any, **keywords: Any) -> Any:
    return partial(resolve, *arguments, **keywords)


yaml = speculative_config
