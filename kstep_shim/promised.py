"""The name under which the head hands the scheduler class to stage 1 once it has promised K.

vLLM looks the name up in the engine process, so a process that nothing has armed stops its
start-up here with one message. Without this it would come up and fail at the first drafted step.
"""

from __future__ import annotations

from typing import Any

NAME = "OmniARScheduler"
MODULE = "vllm_omni.core.sched.omni_ar_scheduler"
#: What the engine configuration of an armed stage says.
PROMISED = f"{__name__}.{NAME}"
#: What it stands for.
STOCK = f"{MODULE}.{NAME}"


def __getattr__(name: str) -> Any:
    if name != NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from kstep_shim.errors import KStepError
    from kstep_shim.installer import current

    reason = current().refusal()
    if reason is not None:
        raise KStepError(
            "stage 1 was configured for several frames per step by an armed head process, but "
            f"this process is not armed: {reason}. Let KSTEP_SHIM=1 and the plug-in or the "
            "bootstrap directory reach it (`kstep-shim doctor` says what is missing), or restart "
            "the head process with KSTEP_SHIM=0"
        )
    return getattr(import_module(MODULE), name)
