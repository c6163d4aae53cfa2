"""Other people's patches on the methods that the shim wraps, for the child of a stage."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

FRAMES = 4
CALLS: list[str] = []


def _targets() -> list[tuple[Any, str]]:
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
    from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner
    from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner

    return [
        (OmniARScheduler, "schedule"),
        (OmniARScheduler, "update_from_output"),
        (OmniNPUModelRunner, "_model_forward"),
        (NPUARModelRunner, "_sample"),
        (NPUModelRunner, "propose_draft_token_ids"),
        (RejectionSampler, "parse_output"),
    ]


def _traced(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def tracing(*args: Any, **kwargs: Any) -> Any:
        CALLS.append(name)
        return original(*args, **kwargs)

    return tracing


def trace() -> None:
    """Wrap the methods as a tracer does."""
    for owner, name in _targets():
        found = vars(owner)[name]
        wrapped = _traced(getattr(owner, name), name)
        setattr(owner, name, staticmethod(wrapped) if isinstance(found, staticmethod) else wrapped)


def trace_on_top() -> None:
    """The tracer comes after the shim."""
    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    trace()


def ascend_again() -> None:
    """vllm-ascend applies its platform and worker patches once more, after the shim."""
    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    from vllm_ascend.utils import adapt_patch

    adapt_patch(is_global_patch=True)
    adapt_patch(is_global_patch=False)


def replaced() -> None:
    """Somebody puts a method of his own in the place of ours, once the head has promised K."""
    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    from vllm.v1.engine.core import EngineCore
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner

    build = EngineCore.__init__

    def building(core: Any, *args: Any, **kwargs: Any) -> None:
        NPUARModelRunner._sample = lambda self, logits, spec_decode_metadata: None
        build(core, *args, **kwargs)

    EngineCore.__init__ = building
