"""Minimum tokens: keep vLLM's mask off the stop row; the verify enforces the minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Head, Patch, Side, Target


def leave_stop_rows(wrapped: Callable[..., Any], processor: Any, args: Any, kwargs: Any) -> Any:
    """Return two-wide stop rows untouched and forget the entries; mask any other head as usual."""
    from kstep_shim.frames.tokens import STOP_ROW_WIDTH

    logits = args[0] if args else kwargs["logits"]
    if logits.shape[-1] != STOP_ROW_WIDTH:
        return wrapped(*args, **kwargs)
    processor.min_toks.clear()
    return logits


_MODULE = "vllm.v1.sample.logits_processor.builtin"

PATCH = Patch(
    name="min_tokens",
    summary="keep the min-tokens mask off the Talker's stop rows",
    targets=(
        Target(
            distribution="vllm",
            module=_MODULE,
            qualname="MinTokensLogitsProcessor.apply",
            parameters=("self", "logits"),
            wrapper=leave_stop_rows,
            head=Head.STOP_ROW,
        ),
        Target(
            distribution="vllm",
            module=_MODULE,
            qualname="MinTokensLogitsProcessor.apply_with_spec_decode",
            parameters=("self", "logits", "num_draft_tokens"),
            wrapper=leave_stop_rows,
            head=Head.STOP_ROW,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The mask counts engine tokens, lags inside a K-frame step and hides the only stop signal.",
    how="Recognises a stop row by its width, so that stage 0 keeps its minimum.",
    remove_when="vLLM judges each position of a drafted step by its own length.",
)
