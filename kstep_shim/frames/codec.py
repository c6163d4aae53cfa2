"""The Talker's codec sampler as device tensors: which codes may follow, and with what chances.

The numbers are the released sampler's own, operation by operation, so that every id is the same:
temperature, the frequency penalty over the last 16 frames, the floor below which the codec may not
end, top-p then top-k, softmax. Only the threshold of top-k is found otherwise: in the order that
top-p has sorted already, because a second search through all scores takes as long as the sort.
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
#: Codes that top-p and top-k leave at least.
KEPT_AT_LEAST = 3
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
        Its module's own filter, what `keep` is checked against.
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

    @property
    def top_k(self) -> int:
        """Codes that top-k leaves, at least three; 0 if it is off."""
        top_k = self.talker._codec_top_k
        if top_k is None or top_k <= 0:
            return 0
        return min(self.vocabulary, max(int(top_k), KEPT_AT_LEAST))

    @property
    def top_p(self) -> float | None:
        """The nucleus, or ``None`` if it is off."""
        top_p = self.talker._codec_top_p
        return float(top_p) if top_p is not None and 0.0 < top_p < 1.0 else None

    def alpha(self, window: Tensor, counted: Tensor) -> Tensor:
        """The penalty's factors ``[n, vocabulary]``.

        `window` ``[n, 16]`` has the latest codes of a row and `counted` 1.0 for those that count.
        """
        frequencies = torch.zeros(window.shape[0], self.vocabulary, device=window.device)
        return torch.pow(self.penalty, frequencies.scatter_add_(1, window, counted))

    def head(self, hidden: Tensor) -> Tensor:
        """The head's output ``[n, vocabulary]`` for hidden rows, in its own dtype."""
        output: Tensor = self.talker.head_code[0](hidden)
        return output

    def scores(self, head: Tensor, alpha: Tensor, too_early: Tensor) -> Tensor:
        """Scores ``[n, vocabulary]`` from the head's output as float32, penalised.

        `too_early` masks the end of a row that may not end yet.
        """
        talker = self.talker
        scores = head / talker._codec_temperature
        if talker._codec_repetition_penalty != 1.0:
            scores = torch.where(scores < 0, scores * alpha, scores / alpha)
        return scores.masked_fill_(too_early, float("-inf"))

    def keep(self, ascending: Tensor, order: Tensor, cumulative: Tensor) -> Tensor:
        """Scores ``[n, vocabulary]`` of the codes that top-p and then top-k leave, else -inf.

        Parameters
        ----------
        ascending, order : Tensor
            ``[n, vocabulary]``: a row's scores sorted, and where each one came from.
        cumulative : Tensor
            ``[n, vocabulary]``: the sums of their chances from the smallest on.

        Notes
        -----
        What top-p removes are the first ones of this order: where the sum reaches ``1 - top_p``,
        the next chance is at least that over the vocabulary, far above the sum's rounding. So
        the k-th largest that is left is the k-th from the end, or top-p left fewer.
        """
        kept = ascending
        if self.top_p is not None:
            remove = cumulative <= 1.0 - self.top_p
            remove[:, -KEPT_AT_LEAST:] = False
            kept = kept.masked_fill(remove, float("-inf"))
        if self.top_k:
            threshold = kept[:, -self.top_k, None]
            kept = kept.masked_fill(kept < threshold, float("-inf"))
        return torch.empty_like(kept).scatter_(1, order, kept)

    def embed(self, codes: Tensor) -> Tensor:
        """Embeddings ``[n, width]`` of `codes`, what the next frame starts from."""
        embedding: Tensor = self.talker.emb_code[0](codes)
        return embedding
