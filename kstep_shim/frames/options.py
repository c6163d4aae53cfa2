"""Request options under which the engine must see every frame on its own."""

from __future__ import annotations

from typing import Any

from kstep_shim.frames.tokens import CONTINUE_TOKEN_ID


def single_frame_reason(sampling_params: Any) -> str | None:
    """Name the option that keeps a request at one frame per step, or ``None``.

    Logprobs need one head row per engine step. Stop token 0 and repetition detection let the
    engine end a request on a *continue* id, which the codec cannot foresee, so the frames after
    it in the same step would be too many.

    Parameters
    ----------
    sampling_params : Any
        vLLM ``SamplingParams`` or ``None``; absent attributes count as unset.

    Returns
    -------
    str or None
    """
    if sampling_params is None:
        return None
    if getattr(sampling_params, "logprobs", None) is not None:
        return "logprobs"
    if getattr(sampling_params, "prompt_logprobs", None) is not None:
        return "prompt_logprobs"
    if getattr(sampling_params, "repetition_detection", None) is not None:
        return "repetition_detection"
    if CONTINUE_TOKEN_ID in (getattr(sampling_params, "stop_token_ids", None) or ()):
        return "stop token id 0"
    if getattr(sampling_params, "eos_token_id", None) == CONTINUE_TOKEN_ID:
        return "end-of-sequence id 0"
    return None
