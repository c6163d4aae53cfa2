"""Request options that the Talker's head allows, and those that it does not."""

from __future__ import annotations

import copy
from typing import Any

from kstep_shim.frames.tokens import CONTINUE_TOKEN_ID, STOP_ROW_WIDTH

#: Options that name ids of a real vocabulary. On the stop row they would crash the stage (an id
#: above 1) or take away the end of speech.
_VOCABULARY_OPTIONS = ("allowed_token_ids", "logit_bias", "_bad_words_token_ids")
#: The one of them that crashes the released codec head, too: its batch has no vocabulary.
_CODEC_HEAD_OPTIONS = ("allowed_token_ids",)
#: Options that make the engine look at every row of the head, of which a K-frame step keeps none.
_ROW_OPTIONS = ("logprobs", "prompt_logprobs", "logprob_token_ids", "structured_outputs")
_COUNTS = ("logprobs", "prompt_logprobs")


def single_frame_reason(sampling_params: Any) -> str | None:
    """Name the option that keeps a request at one frame per step, or ``None``.

    Logprobs and grammars need one head row per engine step. Stop token 0 and repetition detection
    let the engine end a request on a *continue* id, which the codec cannot foresee, so the frames
    after it in the same step would be too many.

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
    for name in _ROW_OPTIONS:
        if getattr(sampling_params, name, None) is not None:
            return name
    if getattr(sampling_params, "repetition_detection", None) is not None:
        return "repetition_detection"
    if CONTINUE_TOKEN_ID in (getattr(sampling_params, "stop_token_ids", None) or ()):
        return "stop token id 0"
    if getattr(sampling_params, "eos_token_id", None) == CONTINUE_TOKEN_ID:
        return "end-of-sequence id 0"
    return None


def without_vocabulary_options(
    sampling_params: Any, codec_head: bool = False
) -> tuple[Any, list[str]]:
    """Take the options away that have no meaning on a stop row, or crash the released stage.

    Such a crash hits every client that the stage serves. A request for more logprobs than the stop
    row is wide gets as many as there are.

    Parameters
    ----------
    sampling_params : Any
        vLLM ``SamplingParams`` or ``None``; never changed.
    codec_head : bool, default False
        Whether the head has a real vocabulary, where all but one of them work.

    Returns
    -------
    sampling_params : Any
        The very object given, or a copy without them.
    ignored : list of str
        What was taken away.
    """
    instead: dict[str, int | None] = {
        name: None
        for name in (_CODEC_HEAD_OPTIONS if codec_head else _VOCABULARY_OPTIONS)
        if getattr(sampling_params, name, None) is not None
    }
    if not codec_head:
        instead.update(_beyond_the_row(sampling_params))
    if not instead:
        return sampling_params, []
    kept = copy.copy(sampling_params)
    for name, value in instead.items():
        setattr(kept, name, value)
    above = f" above {STOP_ROW_WIDTH}"
    return kept, [
        name.removeprefix("_") + (above if value else "") for name, value in instead.items()
    ]


def _beyond_the_row(sampling_params: Any) -> dict[str, int | None]:
    """Logprobs of columns that a stop row does not have, and what to ask for instead."""
    instead: dict[str, int | None] = {}
    named = getattr(sampling_params, "logprob_token_ids", None) or ()
    if any(token >= STOP_ROW_WIDTH for token in named):
        instead["logprob_token_ids"] = None
    for name in _COUNTS:
        if (getattr(sampling_params, name, None) or 0) > STOP_ROW_WIDTH:
            instead[name] = STOP_ROW_WIDTH
    return instead
