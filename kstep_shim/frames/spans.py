"""Reading the per-request facts that the runner hands to the model each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Keys under which vllm-omni's runner passes them.
SPANS_KEY = "request_token_spans"
INFOS_KEY = "model_intermediate_buffer"
ELIGIBLE_KEY = "request_sample_eligible"
#: Key of the per-request remaining output budget that the shim adds.
REMAINING_KEY = "request_max_tokens_remaining"

Span = tuple[int, int]


def request_spans(model_kwargs_extra: Mapping[str, Any]) -> list[Span]:
    """Hidden-row span ``(start, end)`` of each request, or an empty list."""
    spans = model_kwargs_extra.get(SPANS_KEY) or ()
    return [(int(start), int(end)) for start, end in spans]


def request_infos(model_kwargs_extra: Mapping[str, Any]) -> list[Any]:
    """Live per-request buffers, in batch order, or an empty list."""
    return list(model_kwargs_extra.get(INFOS_KEY) or ())


def is_prefill(info: Any) -> bool:
    """Whether the runner marked this request as still reading its prompt."""
    return isinstance(info, dict) and bool(info.get("_omni_is_prefill"))
