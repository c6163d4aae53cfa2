"""What a client of the Talker must know of its head.

Up to vllm-omni 0.26 the head is a stop row: two columns, "go on" and "stop", while the model draws
the codes by itself. From 0.28 on it is the codec's vocabulary, vLLM draws the codes, and the
codec's own end is a stop token. Told apart by what the model has, not by its version.
"""

from __future__ import annotations

from typing import Any

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head
from kstep_shim.frames.contract import is_codec_head

#: ``SamplingParams`` of an ordinary request to a stop row.
STOP_ROW_OPTIONS = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "seed": 42,
    "stop_token_ids": [1],
}
#: The same for a codec head, as the released deployment has them, less the codec's end.
_CODEC_HEAD_OPTIONS = {
    "temperature": 0.8,
    "top_p": 0.85,
    "top_k": 25,
    "repetition_penalty": 1.05,
    "seed": 42,
}


def codec_options(codes: int) -> dict[str, Any]:
    """``SamplingParams`` of an ordinary request to a codec head with so many codes."""
    return {**_CODEC_HEAD_OPTIONS, "stop_token_ids": [codes - 1]}


def client_options(talker: Any) -> dict[str, Any]:
    """``SamplingParams`` of an ordinary request; its own options come on top."""
    if is_codec_head(talker):
        return codec_options(int(talker._codec_eos_id) + 1)
    return STOP_ROW_OPTIONS


def installed_options(codes: int = 64) -> dict[str, Any]:
    """The same of a program that has no Talker: for the installed stack's head."""
    return codec_options(codes) if installed_head() is Head.CODEC else dict(STOP_ROW_OPTIONS)


def codec_generator(talker: Any, runner: Any, request_id: str) -> Any:
    """The generator that the codes of a request are drawn with, or None."""
    if not is_codec_head(talker):
        return talker._request_generators.get(request_id)
    request = runner.requests.get(request_id)
    return None if request is None else request.generator
