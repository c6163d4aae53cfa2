"""The names under which an armed head hands its classes to stage 1 once it has promised K.

vLLM looks the scheduler class up in the engine process and the worker class in each worker, Ray's
included, so a process that nothing has armed stops its start-up here with one message. Without
this it would come up and fail at the first drafted step.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

#: Name of each class and the module that has it.
CLASSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "OmniARScheduler": "vllm_omni.core.sched.omni_ar_scheduler",
        "NPUARWorker": "vllm_omni.platforms.npu.worker.npu_ar_worker",
        "GPUARWorker": "vllm_omni.worker.gpu_ar_worker",
    }
)
_PROMISED: Final = {f"{module}.{name}": f"{__name__}.{name}" for name, module in CLASSES.items()}
_STOCK: Final = {promised: stock for stock, promised in _PROMISED.items()}


def promised(path: str) -> str:
    """Return what an armed stage's configuration says for a class; others stay as they are."""
    return _PROMISED.get(path, path)


def stock(path: str) -> str:
    """Undo `promised`."""
    return _STOCK.get(path, path)


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
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
    return getattr(import_module(CLASSES[name]), name)
