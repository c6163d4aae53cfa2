"""Whether a step replays the one-query graph instead of the K-query graph, and its beginning."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.contract import supports_multi_frame
from kstep_shim.frames.narrow_step import NarrowStep, OneQueryGraph
from kstep_shim.frames.notices import Notices, process_notices
from kstep_shim.frames.parts import NARROW_VARIABLE, narrow_allowed, part_name
from kstep_shim.frames.spans import Span


def narrow_replay_enabled(runner: Any, environ: Mapping[str, str] | None = None) -> bool:
    """Whether this worker should capture and replay the one-query graph.

    Parameters
    ----------
    runner : Any
        Model runner with ``model`` and ``num_spec_tokens``.
    environ : Mapping[str, str], optional
        Where ``KSTEP_SHIM_NARROW`` and the part's name are looked up; the process environment by
        default.

    Returns
    -------
    bool
        ``False`` on a part whose one-query capture is known to fault, so that a capture cannot
        bring a deployment down, and wherever several frames per step are off.
    """
    environ = os.environ if environ is None else environ
    if int(getattr(runner, "num_spec_tokens", 0) or 0) <= 0:
        return False
    if not supports_multi_frame(getattr(runner, "model", None)):
        return False
    return narrow_allowed(part_name(environ), environ.get(NARROW_VARIABLE, ""))


def begin_narrow_step(
    *,
    runner: Any,
    forward_context: Any,
    frames: int,
    positions: Any,
    inputs_embeds: Any,
    spans: list[Span],
    notices: Notices | None = None,
) -> NarrowStep | None:
    """Point the forward context at the one-query graph, or decline. Never raises.

    Parameters
    ----------
    runner : Any
        Model runner. ``captured_one_query(rows, frames)`` is asked for the graph captured for that
        many requests, see `OneQueryGraph`; a runner without the method has none.
    forward_context : Any
        The step's forward context; its ``attn_metadata`` holds the K-wide slots and lengths.
    frames : int
        Frames of the step, K.
    positions : Tensor
        ``[tokens]`` persistent buffer.
    inputs_embeds : Tensor
        ``[tokens, hidden]`` persistent buffer.
    spans : list of (int, int)
        The step's spans.
    notices : Notices, optional
        Logs each distinct reason for declining once; the process-wide record by default.

    Returns
    -------
    NarrowStep or None
        ``None`` means the wide replay, and nothing was touched. Otherwise `end_narrow_step` must
        follow, also after an exception.
    """
    notices = notices or process_notices
    try:
        if not narrow_replay_enabled(runner):
            raise _DeclinedError("disabled here")
        narrow = _prepare(runner, forward_context, frames, positions, inputs_embeds, spans)
        # All attributes are read before one is set, so that declining leaves the context alone.
        for name in narrow.graph.context:
            narrow.saved_context[name] = getattr(forward_context, name)
        for name, value in narrow.graph.context.items():
            setattr(forward_context, name, value)
        for buffer, value in narrow.graph.constants:
            buffer.copy_(value)
    except _DeclinedError as reason:
        notices.notify(f"narrow: {reason}", f"one-query replay declined: {reason}", level=20)
        return None
    except Exception as error:
        key = f"narrow: {type(error).__name__}"
        notices.notify(key, f"one-query replay declined: {error!r}")
        return None
    return narrow


class _DeclinedError(Exception):
    """A precondition of the narrow replay does not hold."""


def _prepare(
    runner: Any,
    forward_context: Any,
    frames: int,
    positions: Any,
    inputs_embeds: Any,
    spans: list[Span],
) -> NarrowStep:
    rows = len(spans)
    if rows == 0 or frames < 2:
        raise _DeclinedError("no rows or a single frame")
    if [tuple(span) for span in spans] != [
        (row * frames, (row + 1) * frames) for row in range(rows)
    ]:
        raise _DeclinedError("spans are not one uniform block")
    captured = getattr(runner, "captured_one_query", None)
    graph: OneQueryGraph | None = captured(rows, frames) if callable(captured) else None
    if graph is None:
        raise _DeclinedError(f"no one-query graph captured for {rows} requests")
    tokens = rows * frames
    metadata = _attention_metadata(forward_context)
    slots = _buffer("slot mapping", getattr(metadata, "slot_mapping", None), tokens)
    lengths = _buffer("sequence lengths", getattr(metadata, "seq_lens", None), rows)
    positions = _buffer("positions", positions, tokens)
    inputs_embeds = _buffer("input embeddings", inputs_embeds, tokens)
    graph_slots = _buffer("graph slot mapping", graph.slot_mapping, rows)
    graph_lengths = _buffer("graph sequence lengths", graph.seq_lens, rows)
    if positions.dim() != 1:
        raise _DeclinedError("positions have more than one dimension")
    back = torch.arange(1 - frames, 1, device=lengths.device, dtype=lengths.dtype)
    wide_embeds = inputs_embeds[:tokens].unflatten(0, (rows, frames))
    step_embeds = wide_embeds.clone()
    return NarrowStep(
        rows=rows,
        frames=frames,
        inputs_embeds=inputs_embeds,
        positions=positions,
        slot_mapping=graph_slots,
        seq_lens=graph_lengths,
        step_slots=slots[:tokens].view(rows, frames).clone(),
        step_positions=positions[:tokens].view(rows, frames).clone(),
        # vllm-ascend has the lengths on the host: one upload here, not one per frame.
        step_seq_lens=(lengths[:rows, None] + back).to(graph_lengths.device),
        step_embeds=step_embeds,
        spans=list(spans),
        graph=graph,
        saved_buffers=[
            (wide_embeds, step_embeds),
            *(
                (buffer[:rows], buffer[:rows].clone())
                for buffer in (graph_slots, positions, graph_lengths)
            ),
            *((buffer, buffer.clone()) for buffer, _ in graph.constants),
        ],
    )


def _buffer(name: str, value: Any, needed: int) -> Tensor:
    """Check that `value` is a tensor with at least `needed` rows."""
    if not isinstance(value, Tensor):
        raise _DeclinedError(f"no {name}")
    if value.shape[0] < needed:
        raise _DeclinedError(f"too few {name}")
    return value


def _attention_metadata(forward_context: Any) -> Any:
    """Find the one metadata object that all attention layers of the step share."""
    by_layer = getattr(forward_context, "attn_metadata", None)
    if not isinstance(by_layer, Mapping) or not by_layer:
        raise _DeclinedError("no attention metadata by layer")
    distinct = {id(metadata): metadata for metadata in by_layer.values()}
    if len(distinct) > 1:
        raise _DeclinedError("attention layers with different metadata")
    return next(iter(distinct.values()))
