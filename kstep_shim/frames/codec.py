"""The Talker's codec sampler as device tensors: which codes may follow, and with what chances.

The numbers are the released sampler's own, operation by operation, so that every id is the same:
temperature, the frequency penalty over the last 16 frames, the floor below which the codec may not
end, top-p then top-k, softmax. What may round differently for several rows at once, up to the
candidates, is done row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Frames that the repetition penalty looks back on.
HISTORY = 16
_NEEDED = (
    "head_code",
    "emb_code",
    "_codec_temperature",
    "_codec_top_k",
    "_codec_top_p",
    "_codec_repetition_penalty",
    "_codec_min_tokens",
    "_num_audio_tokens",
    "_request_generator",
    "_request_audio_states",
)


@dataclass(frozen=True)
class Codec:
    """The sampler of a Talker, with its constants on the device already.

    Attributes
    ----------
    talker : Any
        The released Talker.
    top_k_top_p : callable
        Its module's own filter.
    vocabulary : int
        Codec ids; the last one ends the speech.
    penalty, is_end : Tensor
        0-d penalty; ``[1, vocabulary]`` mask of the end.
    """

    talker: Any
    top_k_top_p: Callable[..., Tensor]
    vocabulary: int
    penalty: Tensor
    is_end: Tensor

    @classmethod
    def of(cls, talker: Any) -> Codec | None:
        """The codec of `talker`, or ``None`` if it is not the Talker that this module knows."""
        modules = (sys.modules.get(kind.__module__) for kind in type(talker).__mro__)
        found = (getattr(module, "_apply_top_k_top_p", None) for module in modules)
        top_k_top_p = next((function for function in found if function is not None), None)
        if top_k_top_p is None or any(not hasattr(talker, name) for name in _NEEDED):
            return None
        weight = talker.head_code[0].weight
        vocabulary = int(talker._num_audio_tokens)
        ids = torch.arange(vocabulary, device=weight.device)
        return cls(
            talker=talker,
            top_k_top_p=top_k_top_p,
            vocabulary=vocabulary,
            penalty=torch.full(
                (), talker._codec_repetition_penalty, device=weight.device, dtype=torch.float32
            ),
            is_end=(ids == vocabulary - 1)[None],
        )

    def alpha(self, window: Tensor, counted: Tensor) -> Tensor:
        """The penalty's factors ``[1, vocabulary]`` of one row.

        `window` ``[1, 16]`` has its latest codes and `counted` 1.0 for those that count.
        """
        frequencies = torch.zeros(1, self.vocabulary, device=window.device)
        return torch.pow(self.penalty, frequencies.scatter_add_(1, window, counted))

    def candidates(self, hidden: Tensor, alpha: Tensor, too_early: Tensor) -> Tensor:
        """Scores ``[1, vocabulary]`` of the codes that may follow one hidden row, else -inf.

        `too_early` masks the end of a row that may not end yet.
        """
        talker = self.talker
        scores = talker.head_code[0](hidden).float() / talker._codec_temperature
        if talker._codec_repetition_penalty != 1.0:
            scores = torch.where(scores < 0, scores * alpha, scores / alpha)
        return self.top_k_top_p(
            scores.masked_fill_(too_early, float("-inf")),
            top_k=talker._codec_top_k,
            top_p=talker._codec_top_p,
            min_tokens_to_keep=3,
        )

    def embed(self, codes: Tensor) -> Tensor:
        """Embeddings ``[n, width]`` of `codes`, what the next frame starts from."""
        embedding: Tensor = self.talker.emb_code[0](codes)
        return embedding
