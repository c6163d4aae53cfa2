"""Request options that the Talker's two-column head allows, and those that it does not."""

from __future__ import annotations

import copy
from typing import Any

from kstep_shim.frames.tokens import CONTINUE_TOKEN_ID

#: Options that name ids of a real vocabulary. On the stop row they would crash the stage (an id
#: above 1) or take away the end of speech.
_VOCABULARY_OPTIONS = ("allowed_token_ids", "logit_bias", "_bad_words_token_ids")


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


def without_vocabulary_options(sampling_params: Any) -> tuple[Any, list[str]]:
    """Take the options away that have no meaning on a stop row.

    Parameters
    ----------
    sampling_params : Any
        vLLM ``SamplingParams`` or ``None``; never changed.

    Returns
    -------
    sampling_params : Any
        The very object given, or a copy without them.
    ignored : list of str
        What was taken away.
    """
    ignored = [
        name for name in _VOCABULARY_OPTIONS if getattr(sampling_params, name, None) is not None
    ]
    if not ignored:
        return sampling_params, []
    kept = copy.copy(sampling_params)
    for name in ignored:
        setattr(kept, name, None)
    return kept, [name.removeprefix("_") for name in ignored]
