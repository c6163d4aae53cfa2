"""From hidden rows to the chances of the codes that may follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kstep_shim.frames.codec import KEPT_AT_LEAST, Codec

#: From so many rows on, one sort of all takes less than one for each side by side (an H200).
_SORTED_TOGETHER = 4
#: Does a piece of work for each of so many rows, given as slices of one.
Each = Callable[[int, Callable[[slice], None]], None]


def one_after_another(count: int, work: Callable[[slice], None]) -> None:
    """The plain `Each`."""
    for row in range(count):
        work(slice(row, row + 1))


def scores_of(codec: Codec, hidden: Tensor, alpha: Tensor, too_early: Tensor, each: Each) -> Tensor:
    """Penalised scores ``[n, vocabulary]`` of hidden rows ``[n, width]``, see `Codec.scores`."""
    head = torch.empty(hidden.shape[0], codec.vocabulary, device=hidden.device)
    # A row's product may round differently beside others.
    each(len(head), lambda one: _copy(head[one], codec.head(hidden[one])))
    return codec.scores(head, alpha, too_early)


def chances_of(codec: Codec, scores: Tensor, each: Each) -> Tensor:
    """Chances ``[n, vocabulary]`` of the codes that top-p and top-k leave, from their scores."""
    ascending, order = torch.empty_like(scores), torch.empty_like(scores, dtype=torch.int64)
    if len(scores) < _SORTED_TOGETHER:
        each(len(scores), lambda one: _sort(scores[one], ascending[one], order[one]))
    else:
        _sort(scores, ascending, order)
    sums = torch.softmax(ascending, dim=-1)
    # A row's running sum may round differently beside others.
    each(len(scores), lambda one: _sum_up(sums[one]))
    return torch.softmax(codec.keep(ascending, order, sums), dim=-1)


def chances_problem(codec: Codec) -> str | None:
    """Say why `chances_of` several rows would not be the released sampler's, or ``None``.

    Compares rows of several kinds on the device, ties and a masked end among them. Reads the
    device: ask before serving.
    """
    try:
        scores = _trial_scores(codec)
        released = [
            torch.softmax(
                codec.top_k_top_p(
                    row[None].clone(),
                    top_k=codec.talker._codec_top_k,
                    top_p=codec.talker._codec_top_p,
                    min_tokens_to_keep=KEPT_AT_LEAST,
                ),
                dim=-1,
            )
            for row in scores
        ]
        if not torch.equal(chances_of(codec, scores, one_after_another), torch.cat(released)):
            return "top-p and top-k leave other codes on this device"
    except (RuntimeError, NotImplementedError) as error:
        return f"top-p and top-k cannot be checked on this device: {error}"
    return None


def _trial_scores(codec: Codec) -> Tensor:
    ramp = torch.arange(codec.vocabulary, device=codec.is_end.device, dtype=torch.float32)
    smooth = torch.sin(ramp * 1.7)[None] * torch.tensor([[0.01], [1.0], [4.0], [20.0]]).to(ramp)
    scores = torch.cat((smooth, (smooth * 4).round() / 4))
    scores[::2].masked_fill_(codec.is_end, float("-inf"))
    return scores


def _copy(into: Tensor, value: Tensor) -> None:
    into.copy_(value)


def _sort(scores: Tensor, ascending: Tensor, order: Tensor) -> None:
    torch.sort(scores, dim=-1, out=(ascending, order))


def _sum_up(chances: Tensor) -> None:
    chances.cumsum_(-1)
