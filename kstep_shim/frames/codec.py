"""The Talker's codec sampler as device tensors: one frame of several requests, no host read.

The numbers are the released sampler's own, operation by operation, so that every id is the same:
temperature, the frequency penalty over the last 16 frames, the floor below which the codec may not
end, top-p then top-k, softmax. The draw is what ``torch.multinomial`` does for one sample, an
exponential draw and an argmax, without that function's own read of the probabilities. What may
round differently for several rows at once, up to the candidates, is done row by row; the draw and
the books are the same for any number of rows.
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
    penalty, is_end, ages : Tensor
        0-d penalty; ``[1, vocabulary]`` mask of the end; ``[16]`` ages 16..1 of history entries.
    """

    talker: Any
    top_k_top_p: Callable[..., Tensor]
    vocabulary: int
    penalty: Tensor
    is_end: Tensor
    ages: Tensor

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
            ages=torch.arange(HISTORY, 0, -1, device=weight.device),
        )

    def candidates(self, hidden: Tensor, rows: CodecRows) -> Tensor:
        """Scores of the codes that may follow one hidden row ``[1, width]``, the rest at -inf."""
        talker = self.talker
        scores = talker.head_code[0](hidden).float() / talker._codec_temperature
        if talker._codec_repetition_penalty != 1.0:
            counted = (self.ages <= rows.length[:, None]).to(scores.dtype)
            frequencies = torch.zeros_like(scores).scatter_add_(1, rows.history, counted)
            alpha = torch.pow(self.penalty, frequencies)
            scores = torch.where(scores < 0, scores * alpha, scores / alpha)
        too_early = self.is_end & (rows.step < rows.minimum)[:, None]
        return self.top_k_top_p(
            scores.masked_fill_(too_early, float("-inf")),
            top_k=talker._codec_top_k,
            top_p=talker._codec_top_p,
            min_tokens_to_keep=3,
        )

    def advance(self, candidates: Tensor, noise: Tensor, rows: CodecRows, frame: Tensor) -> None:
        """Draw one frame from ``[n, vocabulary]`` candidates and exponential noise.

        A row that has finished, or has had all the frames it is allowed, stays as it is and emits
        nothing. `frame` is the step's frame counter, ``[1]`` on the device, so that the same
        captured operations serve every frame.
        """
        probabilities = torch.softmax(candidates, dim=-1)
        sampled = torch.argmax(probabilities / noise, dim=-1)
        live = ~rows.finished & (frame < rows.allowed)
        sane = (probabilities.amax(-1) < float("inf")) & (probabilities.amin(-1) >= 0)
        sane = sane & (probabilities.sum(-1) > 0)
        ended = (sampled == self.vocabulary - 1) | (rows.step + 1 >= rows.maximum)
        emits = live & ~ended
        rows.valid.logical_and_(sane | ~live)
        rows.step.add_(live)
        rows.drawn.add_(live)
        rows.current.copy_(torch.where(live, sampled, rows.current))
        rows.spoken.logical_or_(live)
        shifted = torch.cat((rows.history[:, 1:], sampled[:, None]), dim=1)
        rows.history.copy_(torch.where(emits[:, None], shifted, rows.history))
        rows.length.add_(emits).clamp_(max=HISTORY)
        rows.finished.logical_or_(live & ended)
        at = frame.expand(sampled.shape[0], 1)
        rows.emitted.scatter_(1, at, torch.where(emits, sampled, -1)[:, None])
        rows.stopped.scatter_(1, at, rows.finished[:, None])

    def embed(self, rows: CodecRows) -> Tensor:
        """``[n, width]`` embeddings that the next frame starts from; zeros before a first code."""
        embedding = self.talker.emb_code[0](rows.current)
        return embedding * rows.spoken.to(embedding.dtype)[:, None]


@dataclass(frozen=True)
class CodecRows:
    """Some rows of a `CodecTable`: ``[n]`` each, but for the last three.

    Attributes
    ----------
    step, maximum, minimum, allowed : Tensor
        Frames drawn so far, the codec's ceiling and floor, and the step's frames that the
        request's own limit leaves.
    length, history : Tensor
        How many codes the penalty looks back on, and those codes, ``[n, 16]``, newest last.
    finished, spoken, valid : Tensor
        Flags: the codec has ended; it has drawn a code at all; its probabilities were sane.
    current, drawn : Tensor
        Last id drawn, and draws of this step.
    emitted, stopped : Tensor
        ``[n, frames]`` of this step: code or -1, and whether the codec had ended by then.
    """

    step: Tensor
    current: Tensor
    drawn: Tensor
    maximum: Tensor
    minimum: Tensor
    allowed: Tensor
    length: Tensor
    finished: Tensor
    valid: Tensor
    spoken: Tensor
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

    # What `read` returns comes first among the counts and among the flags: one slice of each.
    COUNTS = ("step", "drawn", "maximum", "minimum", "allowed", "length")
    FLAGS = ("finished", "valid", "spoken")
    NUMBERS = COUNTS + FLAGS
    # Entries of a row that `read` returns before the codes.
    READ = 4

    def __init__(self, rows: int, frames: int, device: torch.device) -> None:
        self.rows, self.frames = rows, frames
        self._counts = torch.zeros(len(self.COUNTS), rows, dtype=torch.int64, device=device)
        self._flags = torch.zeros(len(self.FLAGS), rows, dtype=torch.bool, device=device)
        self._history = torch.zeros(rows, HISTORY, dtype=torch.int64, device=device)
        self._current = torch.zeros(rows, dtype=torch.int64, device=device)
        self._emitted = torch.zeros(rows, frames, dtype=torch.int64, device=device)
        self._stopped = torch.zeros(rows, frames, dtype=torch.bool, device=device)
        self.frame = torch.zeros(1, dtype=torch.int64, device=device)

    def rows_at(self, at: slice) -> CodecRows:
        """Views of some rows."""
        numbers = (*self._counts[:, at].unbind(), *self._flags[:, at].unbind())
        named = dict(zip(self.NUMBERS, numbers, strict=True))
        return CodecRows(
            current=self._current[at],
            history=self._history[at],
            emitted=self._emitted[at],
            stopped=self._stopped[at],
            **named,
        )

    def load(self, counts: list[list[int]], flags: list[list[bool]]) -> None:
        """Write the rows' numbers, one upload each for counts and flags; codes stay as they are."""
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

    def set_current(self, index: int, code: Tensor) -> None:
        """Write a row's last id, ``[1]``."""
        self._current[index : index + 1].copy_(code)

    def read(self, rows: int, frames: int) -> list[list[int]]:
        """The step's one device read: per row step, draws, finished, valid, then the codes.

        After these come `frames` emitted codes (-1 for none) and `frames` stop flags.
        """
        numbers = self._counts[:2, :rows].T
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
        return self._current[:rows].clone()
