"""One frame of the device tail for all rows: eager, or captured CUDA graphs per row count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kstep_shim.frames.chances import Each, chances_of, one_after_another, scores_of
from kstep_shim.frames.codec import HISTORY, Codec
from kstep_shim.frames.codec_table import CodecTable
from kstep_shim.frames.notices import process_notices


class TailGraphs(NamedTuple):
    """The captured parts of a frame."""

    look_ahead: torch.cuda.CUDAGraph
    sample: torch.cuda.CUDAGraph
    settle: torch.cuda.CUDAGraph


class TailKernel:
    """Runs the codec's operations on the rows of a step.

    The next forward waits for `sample` alone. The books of the frame (`settle`), what can be
    known of the next one's candidates (`look_ahead`) and its random noise can be done beside the
    next forward. On CUDA the parts are captured once per row count, all rows go through an
    operation together, and what must be done row by row overlaps. The noise is drawn outside of
    the graphs, because every request owns a generator.

    Attributes
    ----------
    noise : Tensor
        ``[rows, vocabulary]`` float32, to be filled row by row before each frame.
    embeds : Tensor
        ``[rows, width]``, the next frame's embeddings after `sample`.
    """

    def __init__(self, codec: Codec, table: CodecTable) -> None:
        self._codec, self._table = codec, table
        weight = codec.talker.emb_code[0].weight
        shape = (table.rows, codec.vocabulary)
        self.noise = torch.ones(shape, dtype=torch.float32, device=weight.device)
        self.embeds = torch.zeros(table.rows, weight.shape[1]).to(weight)
        self._hidden = torch.zeros_like(self.embeds)
        self._alpha = torch.ones_like(self.noise)
        self._too_early = torch.zeros(shape, dtype=torch.bool, device=weight.device)
        self._chances = torch.zeros_like(self.noise)
        self._sampled = torch.zeros_like(table.current)
        self._live = torch.zeros_like(table.valid)
        self._graphs: dict[int, TailGraphs | None] = {}
        self._streams: list[torch.cuda.Stream] = []
        # Elsewhere the same operation may round otherwise for several rows.
        self._together = weight.device.type == "cuda"

    def prepare(self, count: int) -> bool:
        """Make `count` rows ready to run; true if that has spoiled what was in the buffers."""
        self._count = count
        if not self._together or count in self._graphs:
            return False
        self._graphs[count] = self._capture(count)
        return True

    def graphs(self, count: int) -> TailGraphs | None:
        """The captured parts for `count` rows, if there are any."""
        return self._graphs.get(count)

    def rewind(self) -> None:
        """Start counting frames from 0 again."""
        self._table.frame.zero_()

    def look_ahead(self) -> None:
        """Before a step's first frame: its penalties and floors, from the rows as loaded."""
        graphs = self._graphs.get(self._count)
        if graphs is None:
            self._look_ahead(self._count)
        else:
            graphs.look_ahead.replay()

    def take(self, hidden: Tensor, rows: list[int], together: slice | None) -> None:
        """Copy the rows to be sampled from ``[tokens, width]`` hidden states."""
        if together is None:
            for index, row in enumerate(rows):
                self._hidden[index].copy_(hidden[row])
        else:
            self._hidden[: len(rows)].copy_(hidden[together])

    def sample(self) -> None:
        """Draw a frame of every row, and embed it."""
        graphs = self._graphs.get(self._count)
        if graphs is None:
            self._sample(self._count, one_after_another)
        else:
            graphs.sample.replay()

    def settle(self) -> None:
        """Keep the books of the frame just drawn, and look ahead at the next one."""
        graphs = self._graphs.get(self._count)
        if graphs is None:
            self._settle(self._count)
        else:
            graphs.settle.replay()

    def _look_ahead(self, count: int) -> None:
        table, codec = self._table, self._codec
        early = table.frame < table.floor[:count, None]
        torch.logical_and(early, codec.is_end, out=self._too_early[:count])
        window, counted = table.window(count)
        for rows in self._parts(count):
            self._alpha[rows].copy_(codec.alpha(window[rows], counted[rows]))

    def _sample(self, count: int, each: Each) -> None:
        """Draw from exponential noise as ``torch.multinomial`` does, without its host read.

        A row that is not live keeps its id.
        """
        table, sampled, live = self._table, self._sampled[:count], self._live[:count]
        chances = self._chances[:count]
        for rows in self._parts(count):
            scores = scores_of(
                self._codec, self._hidden[rows], self._alpha[rows], self._too_early[rows], each
            )
            self._chances[rows].copy_(chances_of(self._codec, scores, each))
        torch.argmax(chances / self.noise[:count], dim=-1, out=sampled)
        torch.lt(table.frame, table.stop_at[:count], out=live)
        current = table.current[:count]
        torch.where(live, sampled, current, out=current)
        torch.mul(self._codec.embed(current), table.spoken[:count], out=self.embeds[:count])

    def _settle(self, count: int) -> None:
        table, sampled, live = self._table, self._sampled[:count], self._live[:count]
        stop_at, frame = table.stop_at[:count], table.frame
        ended = (sampled == self._codec.vocabulary - 1) | (frame >= table.last[:count])
        torch.where(live & ended, frame, stop_at, out=stop_at)
        # A row that is not finite, or sums to nothing, has no positive chance to draw from.
        chance = self._chances[:count].gather(1, sampled[:, None])[:, 0]
        table.valid[:count].logical_and_((chance > 0) >= live)
        table.codes[:count].scatter_(1, (frame + HISTORY).expand(count, 1), sampled[:, None])
        frame.add_(1)
        self._look_ahead(count)

    def _parts(self, count: int) -> list[slice]:
        """The rows that go through an operation together."""
        if self._together:
            return [slice(0, count)]
        return [slice(row, row + 1) for row in range(count)]

    def _capture(self, count: int) -> TailGraphs | None:
        while len(self._streams) < count:
            self._streams.append(torch.cuda.Stream())
        parts: list[Callable[[], None]] = [
            lambda: self._look_ahead(count),
            lambda: self._sample(count, self._side_by_side),
            lambda: self._settle(count),
        ]
        self.rewind()
        try:
            return TailGraphs(*map(_captured, parts))
        except RuntimeError as error:
            process_notices.notify(
                "tail capture", f"frame tail runs without captured graphs: {error}"
            )
            return None

    def _side_by_side(self, count: int, work: Callable[[slice], None]) -> None:
        main = torch.cuda.current_stream()
        for row in range(count):
            self._streams[row].wait_stream(main)
            with torch.cuda.stream(self._streams[row]):
                work(slice(row, row + 1))
        for stream in self._streams[:count]:
            main.wait_stream(stream)


def _captured(part: Callable[[], None]) -> torch.cuda.CUDAGraph:
    part()  # libraries make their handles on first use
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        part()
    return graph
