"""The loop: K forwards and K sampled frames inside one engine step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from kstep_shim.frames.embedding import require_buffers, write_next_embedding
from kstep_shim.frames.narrow_step import NarrowStep
from kstep_shim.frames.tail import FrameStep, FrameTail, StockTail


def run(
    *,
    model: Any,
    run_model: Callable[[], Any],
    after_forward: Callable[[], None],
    inputs_embeds: Tensor | None,
    input_ids: Tensor | None,
    frames: int,
    model_kwargs: Mapping[str, Any],
    model_kwargs_extra: Mapping[str, Any],
    narrow: NarrowStep | None = None,
    tail: FrameTail | None = None,
) -> Any:
    """Run `frames` codec frames and return the merged step output.

    The same K-query forward is repeated. Before repetition k the embedding of frame k-1's code is
    written in row k of each request's span; after it, frame k is sampled from that row. Rows
    above k are stale meanwhile, which the causal mask keeps from row k, and every later
    repetition replaces them. The loop reads nothing from the device.

    Parameters
    ----------
    model : Any
        The Talker; see `MultiFrameTalker`, plus ``preprocess`` and ``make_omni_output``.
    run_model : callable
        One forward over the step's buffers; returns hidden states ``[tokens, hidden]``.
    after_forward : callable
        The runner's graph bookkeeping, called after every forward. A runner that needs it before
        the forward folds it into `run_model` and passes a no-op.
    inputs_embeds : Tensor or None
        Persistent ``[tokens, hidden]`` buffer that the graph was captured with.
    input_ids : Tensor or None
        ``[tokens]`` ids of the step.
    frames : int
        K, as `applies` returned it.
    model_kwargs, model_kwargs_extra : Mapping[str, Any]
        The runner's keyword arguments; of the latter ``request_token_spans``,
        ``model_intermediate_buffer``, ``request_sample_eligible`` and
        ``request_max_tokens_remaining`` are read.
    narrow : NarrowStep, optional
        An open narrow step: `run_model` then replays the one-query graph, whose row i is request
        i. The caller ends it, also after an exception.
    tail : FrameTail, optional
        What samples and merges; the model's own methods by default.

    Returns
    -------
    OmniOutput
        Codes joined per request, finished flags OR-ed, hidden rows request-major (at least
        ``rows * frames`` of them); the model holds ``[rows * frames, 2]`` stop rows.

    Raises
    ------
    RuntimeError
        A buffer is missing, the forward returned something else than a tensor, or the model
        reported no stop rows. State of frames already sampled stays advanced: do not retry.
    """
    embeds, ids = require_buffers(inputs_embeds, input_ids)
    step = FrameStep(model, frames, model_kwargs, model_kwargs_extra, narrow is not None)
    tail = tail or StockTail()
    tail.begin(step)
    next_embeds: Tensor | None = None
    kept: Tensor | None = None
    for frame in range(frames):
        if frame > 0:
            _feed(step, frame, next_embeds, embeds, ids)
        elif narrow is not None:
            narrow.select(0)
            _gather_first_rows(step, embeds)
        hidden = run_model()
        after_forward()
        if not isinstance(hidden, Tensor):
            raise RuntimeError(f"the forward returned {type(hidden).__name__}, not hidden states")
        if narrow is not None:
            hidden = hidden[: narrow.rows]
            if kept is None:
                kept = hidden.new_empty(narrow.rows, frames, hidden.shape[-1])
            with tail.beside():
                # The next replay overwrites the graph's output buffer.
                kept[:, frame].copy_(hidden)
                narrow.keep_embeddings(frame)
                if frame + 1 < frames:
                    narrow.select(frame + 1)
        next_embeds = tail.frame(frame, hidden)
    if narrow is not None:
        # Issued before the tail waits for the device.
        narrow.restore()
    merged = tail.finish()
    if kept is not None:
        merged = merged._replace(text_hidden_states=kept.flatten(0, 1))
    return merged


def _feed(
    step: FrameStep, frame: int, next_embeds: Tensor | None, embeds: Tensor, ids: Tensor
) -> None:
    """Write the embeddings that frame `frame` starts from."""
    together = step.slice_at(frame)
    if next_embeds is not None and together is not None:
        embeds[together].copy_(next_embeds[: len(step.spans)])
        return
    for index, row in enumerate(step.rows_at(frame)):
        if next_embeds is not None:
            embeds[row].copy_(next_embeds[index])
            continue
        write_next_embedding(
            model=step.model,
            info=step.infos[index],
            input_ids=ids,
            id_row=step.spans[index][0] + frame,
            inputs_embeds=embeds,
            row=row,
        )


def _gather_first_rows(step: FrameStep, embeds: Tensor) -> None:
    """Move each request's first embedding from its span to the row of the one-query graph.

    In request order no source is overwritten before it is read, because i <= start_i.
    """
    for index, (start, _) in enumerate(step.spans):
        if index != start:
            embeds[index].copy_(embeds[start])
