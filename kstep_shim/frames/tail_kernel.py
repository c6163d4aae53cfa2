"""One frame of the device tail for all rows: eager, or a captured CUDA graph per row count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from kstep_shim.frames.codec import Codec, CodecTable
from kstep_shim.frames.notices import process_notices


class TailKernel:
    """Runs the codec's operations on the rows of a step.

    On CUDA they are captured once per row count. What must be done row by row overlaps there, each
    row on a stream of its own. The random noise is drawn outside, because every request owns a
    generator.

    Attributes
    ----------
    noise : Tensor
        ``[rows, vocabulary]`` float32, filled row by row inside `drawing` before each frame.
    embeds : Tensor
        ``[rows, width]``, the next frame's embeddings after `run`.
    """

    def __init__(self, codec: Codec, table: CodecTable) -> None:
        self._codec, self._table = codec, table
        weight = codec.talker.emb_code[0].weight
        shape = (table.rows, codec.vocabulary)
        self.noise = torch.ones(shape, dtype=torch.float32, device=weight.device)
        self.embeds = torch.zeros(table.rows, weight.shape[1]).to(weight)
        self._hidden = torch.zeros_like(self.embeds)
        self._candidates = torch.zeros_like(self.noise)
        self._single = [table.rows_at(slice(i, i + 1)) for i in range(table.rows)]
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self._streams: list[torch.cuda.Stream] = []
        self._aside = torch.cuda.Stream() if self._hidden.device.type == "cuda" else None

    def prepare(self, count: int) -> bool:
        """Make `count` rows ready to run; true if that has spoiled what was in the buffers."""
        self._count = count
        if self._hidden.device.type != "cuda" or count in self._graphs:
            return False
        self._graphs[count] = self._capture(count)
        return True

    @contextmanager
    def drawing(self) -> Iterator[Tensor]:
        """Where to draw the next frame's noise: on CUDA beside the forward, not before it."""
        if self._aside is None:
            yield self.noise
            return
        # Not before the last frame has used up what is there.
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            yield self.noise

    def run(self, hidden: Tensor, rows: list[int], together: slice | None) -> None:
        """Advance every row by one frame, from ``[tokens, width]`` hidden states."""
        if together is None:
            for index, row in enumerate(rows):
                self._hidden[index].copy_(hidden[row])
        else:
            self._hidden[: len(rows)].copy_(hidden[together])
        if self._aside is not None:
            torch.cuda.current_stream().wait_stream(self._aside)
        graph = self._graphs.get(self._count)
        if graph is None:
            self._advance(self._count, _one_after_another)
        else:
            graph.replay()

    def _advance(self, count: int, each: Callable[[int, Callable[[int], None]], None]) -> None:
        each(count, self._consider)
        rows = self._table.rows_at(slice(count))
        self._codec.advance(self._candidates[:count], self.noise[:count], rows, self._table.frame)
        self.embeds[:count].copy_(self._codec.embed(rows))
        self._table.frame.add_(1)

    def _consider(self, index: int) -> None:
        one = slice(index, index + 1)
        row = self._single[index]
        self._candidates[one].copy_(self._codec.candidates(self._hidden[one], row))

    def _capture(self, count: int) -> torch.cuda.CUDAGraph | None:
        while len(self._streams) < count:
            self._streams.append(torch.cuda.Stream())
        self._table.frame.zero_()
        try:
            self._advance(count, self._side_by_side)  # libraries make their handles on first use
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._advance(count, self._side_by_side)
        except RuntimeError as error:
            process_notices.notify(
                "tail capture", f"frame tail runs without a captured graph: {error}"
            )
            return None
        return graph

    def _side_by_side(self, count: int, work: Callable[[int], None]) -> None:
        main = torch.cuda.current_stream()
        for index in range(count):
            self._streams[index].wait_stream(main)
            with torch.cuda.stream(self._streams[index]):
                work(index)
        for stream in self._streams[:count]:
            main.wait_stream(stream)


def _one_after_another(count: int, work: Callable[[int], None]) -> None:
    for index in range(count):
        work(index)
