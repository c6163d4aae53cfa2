"""Keep vLLM's minimum-length mask away from the only stop signal that the Talker has."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("vllm.kstep_shim")

_PROCESSOR_SUFFIX = "MinTokensLogitsProcessor"


def neutralize_kstep_min_tokens(logitsprocs: Any) -> None:
    """Forget every pending minimum of vLLM's min-tokens logits processor. Never raises.

    That processor writes minus infinity over the stop ids of a request that is below its minimum,
    judged by a length that lags inside a multi-frame step. On a stop row that hides the end of
    speech. The minimum itself is enforced where the rows are verified (`accept_frames`) and, for
    the codec, by the model. The processor registers its entries again every step, so call this
    every step, right before sampling.

    Parameters
    ----------
    logitsprocs : Any
        vLLM's ``LogitsProcessors``, a plain iterable of processors, or ``None``. Processors are
        recognised by the end of their class name, so that subclasses and versions are covered.
    """
    try:
        for processor in _processors(logitsprocs):
            if type(processor).__name__.endswith(_PROCESSOR_SUFFIX):
                processor.min_toks.clear()
    except Exception:
        logger.exception("minimum-length mask could not be cleared")


def _processors(logitsprocs: Any) -> Iterable[Any]:
    if logitsprocs is None:
        return ()
    if hasattr(logitsprocs, "non_argmax_invariant"):
        # The property `all` of vLLM's container, read by its parts: old releases lack it.
        return (
            *logitsprocs.non_argmax_invariant,
            *(getattr(logitsprocs, "argmax_invariant", None) or ()),
        )
    return tuple(logitsprocs)
