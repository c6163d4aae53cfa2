"""The Talker's codec sampler as device tensors: one frame of one request, with no host read.

The numbers are the released sampler's own, operation by operation, so that every id is the same:
temperature, the frequency penalty over the last 16 frames, the floor below which the codec may not
end, top-p then top-k, softmax. The draw is what ``torch.multinomial`` does for one sample, an
exponential draw and an argmax, without that function's own read of the probabilities. Rows are
never batched: reductions and matrix products of several rows may round differently.
"""

from __future__ import annotations

import sys
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
    """What sampling needs of a Talker, with its constants on the device already.

    Attributes
    ----------
    talker : Any
        The released Talker, whose own top-p/top-k function is used.
    vocabulary : int
        Codec ids; the last one ends the speech.
    penalty, is_end, ages : Tensor
        0-d penalty; ``[1, vocabulary]`` mask of the end; ``[16]`` ages 16..1 of history entries.
    """

    talker: Any
    vocabulary: int
    penalty: Tensor
    is_end: Tensor
    ages: Tensor

    @classmethod
    def of(cls, talker: Any) -> Codec | None:
        """The codec of `talker`, or ``None`` if it is not the Talker that this module knows."""
        module = sys.modules.get(type(talker).__module__)
        if any(not hasattr(talker, name) for name in _NEEDED):
            return None
        if not hasattr(module, "_apply_top_k_top_p"):
            return None
        weight = talker.head_code[0].weight
        vocabulary = int(talker._num_audio_tokens)
        ids = torch.arange(vocabulary, device=weight.device)
        return cls(
            talker=talker,
            vocabulary=vocabulary,
            penalty=torch.full(
                (), talker._codec_repetition_penalty, device=weight.device, dtype=torch.float32
            ),
            is_end=(ids == vocabulary - 1)[None],
            ages=torch.arange(HISTORY, 0, -1, device=weight.device),
        )

    def probabilities(self, hidden: Tensor, row: CodecRow) -> Tensor:
        """``[1, vocabulary]`` probabilities of the next code after hidden row ``[1, width]``."""
        talker = self.talker
        logits = talker.head_code[0](hidden).float() / talker._codec_temperature
        if talker._codec_repetition_penalty != 1.0:
            counted = (self.ages <= row.length).to(logits.dtype)
            frequencies = torch.zeros_like(logits[0]).scatter_add_(0, row.history, counted)
            alpha = torch.pow(self.penalty, frequencies)
            logits = torch.where(logits < 0, logits * alpha, logits / alpha)
        too_early = self.is_end & (row.step < row.minimum)
        logits = logits.masked_fill(too_early, float("-inf"))
        apply_top_k_top_p = sys.modules[type(talker).__module__]._apply_top_k_top_p
        logits = apply_top_k_top_p(
            logits, top_k=talker._codec_top_k, top_p=talker._codec_top_p, min_tokens_to_keep=3
        )
        return torch.softmax(logits, dim=-1)

    def advance(self, hidden: Tensor, noise: Tensor, row: CodecRow, frame: Tensor) -> None:
        """Sample one frame from ``[1, width]`` hidden and ``[1, vocabulary]`` exponential noise.

        A row that has finished, or has had all the frames it is allowed, stays as it is and emits
        nothing. `frame` is the step's frame counter, ``[1]`` on the device, so that the same
        captured operations serve every frame.
        """
        probabilities = self.probabilities(hidden, row)
        sampled = torch.argmax(probabilities / noise, dim=-1)
        live = ~row.finished & (frame < row.allowed)
        sane = (probabilities.amax() < float("inf")) & (probabilities.amin() >= 0)
        sane = sane & (probabilities.sum() > 0)
        ended = (sampled == self.vocabulary - 1) | (row.step + 1 >= row.maximum)
        emits = live & ~ended
        row.valid.logical_and_(sane | ~live)
        row.step.add_(live.to(row.step.dtype))
        row.drawn.add_(live.to(row.drawn.dtype))
        row.current.copy_(torch.where(live, sampled, row.current))
        row.spoken.logical_or_(live)
        shifted = torch.cat((row.history[1:], sampled))
        row.history.copy_(torch.where(emits, shifted, row.history))
        row.length.copy_(torch.where(emits, (row.length + 1).clamp(max=HISTORY), row.length))
        row.finished.logical_or_(live & ended)
        row.emitted.scatter_(0, frame, torch.where(emits, sampled, -1))
        row.stopped.scatter_(0, frame, row.finished)

    def embed(self, row: CodecRow) -> Tensor:
        """``[1, width]`` embedding that the next frame starts from; zeros before the first code."""
        embedding = self.talker.emb_code[0](row.current)
        return embedding * row.spoken.to(embedding.dtype)[:, None]


@dataclass(frozen=True)
class CodecRow:
    """Views of one request's row in the step's `CodecTable`; all but the last three are ``[1]``."""

    step: Tensor
    maximum: Tensor
    minimum: Tensor
    allowed: Tensor
    length: Tensor
    finished: Tensor
    spoken: Tensor
    current: Tensor
    drawn: Tensor
    valid: Tensor
    history: Tensor
    emitted: Tensor
    stopped: Tensor


class CodecTable:
    """Codec state of a step's requests, a row each, in buffers that outlive the step.

    Parameters
    ----------
    rows, frames : int
        Most requests, and most frames of a step.
    device : torch.device
        Where the Talker's weights are.
    """

    # What `read` returns comes first, so that it is one slice of each.
    _COUNTS = ("step", "current", "drawn", "maximum", "minimum", "allowed", "length")
    _FLAGS = ("finished", "valid", "spoken")

    def __init__(self, rows: int, frames: int, device: torch.device) -> None:
        self.rows, self.frames = rows, frames
        self._counts = torch.zeros(len(self._COUNTS), rows, dtype=torch.int64, device=device)
        self._flags = torch.zeros(len(self._FLAGS), rows, dtype=torch.bool, device=device)
        self._history = torch.zeros(rows, HISTORY, dtype=torch.int64, device=device)
        self._emitted = torch.zeros(rows, frames, dtype=torch.int64, device=device)
        self._stopped = torch.zeros(rows, frames, dtype=torch.bool, device=device)
        self.frame = torch.zeros(1, dtype=torch.int64, device=device)

    def row(self, index: int) -> CodecRow:
        """The views of row `index`."""
        one = slice(index, index + 1)
        named = {name: self._counts[i, one] for i, name in enumerate(self._COUNTS)}
        named |= {name: self._flags[i, one] for i, name in enumerate(self._FLAGS)}
        return CodecRow(
            history=self._history[index],
            emitted=self._emitted[index],
            stopped=self._stopped[index],
            **named,
        )

    def load(self, counts: list[list[int]], flags: list[list[bool]]) -> None:
        """Write the rows' numbers, one upload for the counts and one for the flags."""
        width, device = len(counts[0]), self._counts.device
        self._counts[:, :width].copy_(torch.tensor(counts).to(device))
        self._flags[:, :width].copy_(torch.tensor(flags).to(device))
        self._emitted[:width].fill_(-1)
        self._stopped[:width].fill_(False)
        self.frame.zero_()

    def set_history(self, index: int, codes: Tensor) -> None:
        """Write a row's latest codes, at most 16, newest last."""
        if codes.shape[0]:
            self._history[index, HISTORY - codes.shape[0] :].copy_(codes)

    def read(self, rows: int, frames: int) -> list[list[int]]:
        """The step's one device read: per row step, current, drawn, finished, valid, then codes.

        After the five come `frames` emitted codes (-1 for none) and `frames` stop flags.
        """
        numbers = self._counts[:3, :rows].T
        flags = self._flags[:2, :rows].T.to(torch.int64)
        emitted, stopped = self._emitted[:rows, :frames], self._stopped[:rows, :frames]
        packed = torch.cat((numbers, flags, emitted, stopped.to(torch.int64)), dim=1)
        result: list[list[int]] = packed.tolist()
        return result

    def history_copy(self, rows: int) -> Tensor:
        """A copy of the histories, ``[rows, 16]``, that later steps do not change."""
        return self._history[:rows].clone()

    def current_copy(self, rows: int) -> Tensor:
        """A copy of the last sampled ids, ``[rows]``."""
        return self._counts[1, :rows].clone()
