"""What the Talker stage's engine arguments ask for, and whether K frames can be served so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The attention builder of vllm-ascend takes at most 16 query positions per request.
MAX_FRAMES = 16
MODEL_ARCHITECTURES = frozenset(
    {"MiniCPMO45OmniForConditionalGeneration", "MiniCPMO45OmniTTSForConditionalGeneration"}
)
_SYNCHRONOUS = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"
_ASYNCHRONOUS = "vllm_omni.core.sched.omni_ar_scheduler.OmniARAsyncScheduler"


@dataclass(frozen=True)
class StagePlan:
    """K for one stage, who said so, and why it is not K if it is not.

    ``frames`` is 1 where nothing was asked for or a refusal stands; ``requested`` is what was
    asked for.
    """

    frames: int
    requested: int
    source: str
    refusal: str | None = None


def is_talker(arguments: Any) -> bool:
    """Whether these engine arguments describe the Talker stage of MiniCPM-o 4.5."""
    return (
        getattr(arguments, "model_stage", None) == "tts"
        and getattr(arguments, "model_arch", None) in MODEL_ARCHITECTURES
    )


def plan_stage(arguments: Any, frames: int, source: str) -> StagePlan:
    """Decide K for a Talker stage.

    Parameters
    ----------
    arguments : OmniEngineArgs
        The stage's engine arguments before the engine configuration is made.
    frames : int
        K as the shim was told, used where the YAML has no ``speculative_config``.
    source : str
        Who told it, for the log.
    """
    speculative = arguments.speculative_config
    if speculative:
        source = "the deploy YAML"
        method = speculative.get("method")
        count = speculative.get("num_speculative_tokens")
        if method != "ngram" or not isinstance(count, int) or count < 1:
            return StagePlan(
                1,
                1,
                source,
                f"stage 1 has speculative_config method={method!r} "
                f"num_speculative_tokens={count!r}; expected method 'ngram' with K - 1 tokens, "
                "or no speculative_config at all",
            )
        frames = count + 1
    if frames < 2:
        return StagePlan(1, frames, source)
    refusal = stage_refusal(arguments, frames)
    return StagePlan(1 if refusal else frames, frames, source, refusal)


def stage_refusal(arguments: Any, frames: int) -> str | None:
    """Why this stage cannot serve `frames` frames per step, or ``None``."""
    if frames > MAX_FRAMES:
        return f"{frames} frames per step; the attention kernels take at most {MAX_FRAMES}"
    chunk = _extra(arguments).get("codec_chunk_frames")
    if chunk is not None and frames > int(chunk):
        return (
            f"{frames} frames per step exceed codec_chunk_frames={chunk}; frames would pile up "
            f"before the vocoder: ask for {chunk} or fewer, or raise codec_chunk_frames"
        )
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        size = getattr(arguments, name, 1) or 1
        if int(size) > 1:
            return f"stage 1 has {name}={size}; several frames per step need 1"
    if getattr(arguments, "enable_prefix_caching", None) is not False:
        return (
            f"stage 1 has enable_prefix_caching={arguments.enable_prefix_caching}; "
            "several frames per step need it set to false"
        )
    if getattr(arguments, "enable_lora", False):
        return "stage 1 has enable_lora=True; several frames per step need it off"
    if getattr(arguments, "logits_processors", None):
        return (
            f"stage 1 has logits_processors={arguments.logits_processors}; vLLM takes none beside "
            "several frames per step"
        )
    additional = getattr(arguments, "additional_config", None) or {}
    if isinstance(additional, Mapping) and additional.get("enable_flashcomm1"):
        return "stage 1 has enable_flashcomm1; several frames per step need it off"
    return None


def stage_warnings(arguments: Any, frames: int) -> list[str]:
    """What will work, but not as well as the operator may think."""
    rows, budget = arguments.max_num_seqs, arguments.max_num_batched_tokens
    if rows is not None and budget is not None and rows * frames > budget:
        return [
            f"max_num_seqs={rows} times {frames} frames exceeds max_num_batched_tokens={budget}: "
            f"steps of more than {budget // frames} requests run one frame; raise the budget to "
            f"{rows * frames}"
        ]
    return []


def ask_for_frames(arguments: Any, frames: int) -> None:
    """Put K into the stage's engine arguments, as the deploy YAML would.

    Synchronous scheduling goes with it: an n-gram method and asynchronous scheduling exclude each
    other in vLLM.
    """
    arguments.speculative_config = arguments.speculative_config or {
        "method": "ngram",
        "num_speculative_tokens": frames - 1,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 1,
    }
    arguments.async_scheduling = False
    if arguments.scheduler_cls in (None, _ASYNCHRONOUS):
        arguments.scheduler_cls = _SYNCHRONOUS


def _extra(arguments: Any) -> Mapping[str, Any]:
    connector = getattr(arguments, "stage_connector_spec", None) or {}
    extra = connector.get("extra") if isinstance(connector, Mapping) else None
    return extra if isinstance(extra, Mapping) else {}
