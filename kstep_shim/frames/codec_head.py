"""The codec head: vLLM draws the codes, and one is emitted a frame after it was drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.frames.codec_head_tail import CodecHeadTail
from kstep_shim.frames.tail import FrameTail


class CodecHead:
    """Implements `Flavour`."""

    _tail: CodecHeadTail

    def refusal(self, info: dict[str, Any]) -> str | None:
        """See `Flavour`: every frame embeds the id before it, and decoding has one."""
        return None if isinstance(info.get("audio_state"), dict) else "no codec state"

    def tail(self, runner: Any) -> FrameTail:
        """See `Flavour`: the model's and the runner's own methods, frame by frame."""
        self._tail = CodecHeadTail(runner)
        return self._tail

    def drafts(self, rows: list[list[int]], drafts: list[list[int]]) -> list[list[int]]:
        """See `Flavour`: each request's last id, which the model embeds and emits next."""
        pairs = zip(rows, drafts, strict=False)
        return [[row[-1]] * len(ids) if ids else [] for row, ids in pairs]

    def accept(
        self, stock: Callable[..., Any], runner: Any, logits: Any, spec_decode_metadata: Any
    ) -> Any:
        """See `Flavour`: what the frames of a drafted step have drawn."""
        if spec_decode_metadata is None:
            return stock(logits, spec_decode_metadata)
        from vllm.v1.outputs import SamplerOutput

        ids = self._tail.take_ids()
        return SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)

    def stopped(self, runner: Any, token: int) -> bool:
        """See `Flavour`."""
        return token == int(runner.get_model().talker._codec_eos_id)
