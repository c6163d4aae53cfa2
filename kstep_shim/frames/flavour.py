"""What differs between the released Talkers' heads; all the rest of a K-frame step is shared.

Up to vllm-omni 0.26 the head is a stop row: the model draws the codes itself and vLLM sees
*continue* or *stop*. From 0.28 on the head is the codec's vocabulary, vLLM draws, and a code is
emitted one frame after it was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kstep_shim.frames.contract import is_codec_head
from kstep_shim.frames.tail import FrameTail


class Flavour(Protocol):
    """One kind of head, of one runner; what a step needs is in its `FrameTail`."""

    def refusal(self, info: dict[str, Any]) -> str | None:
        """Why a decoding request with this buffer cannot run several frames now."""
        ...

    def tail(self, runner: Any) -> FrameTail:
        """How the frames of this runner are sampled, and when their codes are emitted."""
        ...

    def drafts(self, rows: list[list[int]], drafts: list[list[int]]) -> list[list[int]]:
        """The draft ids for `drafts`, whose lengths count, after the tokens `rows`."""
        ...

    def accept(
        self, stock: Callable[..., Any], runner: Any, logits: Any, spec_decode_metadata: Any
    ) -> Any:
        """The step's ``SamplerOutput``; `stock` is the runner's own ``_sample``."""
        ...

    def stopped(self, runner: Any, token: int) -> bool:
        """Whether this id says that the speech has ended."""
        ...


def flavour_of(model: Any) -> Flavour:
    """The flavour of a Talker that `supports_multi_frame`."""
    if is_codec_head(model):
        from kstep_shim.frames.codec_head import CodecHead

        return CodecHead()
    from kstep_shim.frames.stop_row import StopRow

    return StopRow()
