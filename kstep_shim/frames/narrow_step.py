"""An open narrow step: the one-query graph's buffers, and what each frame puts into them.

The loop reads one row per request of each forward, so a graph with one query per request does the
same work for less. Between replays only four things differ: the input embedding, the position,
the KV slot and the length of each request. The block table stays put for the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from kstep_shim.frames.spans import Span


class OneQueryGraph(Protocol):
    """A captured graph with one query per request, in one step.

    What ``runner.captured_one_query(rows, frames)`` gives.

    Attributes
    ----------
    slot_mapping, seq_lens : Tensor
        The buffers that the graph reads: KV slot and length per request, at least ``[rows]``.
    context : Mapping[str, Any]
        Forward-context attributes to hold while the graph is replayed: its batch descriptor and
        runtime mode, and the attention metadata where the replay takes host lists from it.
    constants : sequence of (Tensor, Tensor)
        Further buffers that the graph reads, each with what it holds for the whole step, padding
        rows among them.
    """

    @property
    def slot_mapping(self) -> Tensor: ...
    @property
    def seq_lens(self) -> Tensor: ...
    @property
    def context(self) -> Mapping[str, Any]: ...
    @property
    def constants(self) -> Sequence[tuple[Tensor, Tensor]]: ...

    def before_replay(self, frame: int) -> None:
        """Set what the graph's replay for frame `frame` takes from elsewhere; often nothing."""
        ...

    def after_step(self) -> None:
        """Undo what `before_replay` did, once the buffers hold the K-wide layout again."""
        ...


@dataclass
class NarrowStep:
    """One open narrow step: the graph's buffers, and what each frame puts into them.

    Attributes
    ----------
    rows, frames : int
        Requests and frames of the step.
    inputs_embeds, positions, slot_mapping, seq_lens : Tensor
        The buffers that the graph reads; row i is request i.
    step_slots, step_positions, step_seq_lens : Tensor
        ``[rows, frames]`` copies of the K-wide layout. Copies, because the buffers alias it: the
        graph's slots are the first row of the step's.
    step_embeds : Tensor
        ``[rows, frames, hidden]``: the K-wide embeddings, replaced as the frames run.
    spans : list of (int, int)
        The step's spans, request i at ``(i * frames, (i + 1) * frames)``.
    """

    rows: int
    frames: int
    inputs_embeds: Tensor
    positions: Tensor
    slot_mapping: Tensor
    seq_lens: Tensor
    step_slots: Tensor
    step_positions: Tensor
    step_seq_lens: Tensor
    step_embeds: Tensor
    spans: list[Span]
    graph: OneQueryGraph
    saved_context: dict[str, Any] = field(default_factory=dict)
    saved_buffers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def select(self, frame: int) -> None:
        """Put frame `frame`'s slots, positions and lengths where the graph reads them."""
        self.slot_mapping[: self.rows].copy_(self.step_slots[:, frame])
        self.positions[: self.rows].copy_(self.step_positions[:, frame])
        self.seq_lens[: self.rows].copy_(self.step_seq_lens[:, frame])
        self.graph.before_replay(frame)

    def keep_embeddings(self, frame: int) -> None:
        """Remember frame `frame`'s embeddings for the K-wide layout that the step leaves."""
        self.step_embeds[:, frame].copy_(self.inputs_embeds[: self.rows])

    def restore(self) -> None:
        """Leave the buffers as a K-wide step would have left them; a second call does nothing."""
        if not self.saved_buffers:
            return
        for buffer, before in self.saved_buffers:
            buffer.copy_(before)
        self.saved_buffers.clear()
        self.graph.after_step()


def end_narrow_step(forward_context: Any, narrow: NarrowStep | None) -> None:
    """Leave context and buffers as a K-wide step would have left them.

    Parameters
    ----------
    forward_context : Any
        The context given to `begin_narrow_step`.
    narrow : NarrowStep or None
        Its result; ``None`` is a no-op. A second call for the same step changes nothing more.
    """
    if narrow is None:
        return
    for name, value in narrow.saved_context.items():
        setattr(forward_context, name, value)
    narrow.saved_context.clear()
    narrow.restore()
