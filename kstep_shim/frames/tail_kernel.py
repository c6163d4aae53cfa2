"""One frame of the device tail for all rows: eager, or a captured CUDA graph per row count."""

from __future__ import annotations

from collections.abc import Callable

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
        ``[rows, vocabulary]`` float32, filled row by row by the caller before each frame.
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

    def prepare(self, count: int) -> None:
        """Make `count` rows ready to run; what is in the buffers is lost on the first call."""
        self._count = count
        if self._hidden.device.type == "cuda" and count not in self._graphs:
            self._graphs[count] = self._capture(count)

    def run(self, hidden: Tensor, rows: list[int]) -> None:
        """Advance every row by one frame, from ``[tokens, width]`` hidden states."""
        self._gather(hidden, rows)
        graph = self._graphs.get(self._count)
        if graph is None:
            self._advance(self._count, _one_after_another)
        else:
            graph.replay()

    def _gather(self, hidden: Tensor, rows: list[int]) -> None:
        stride = rows[1] - rows[0] if len(rows) > 1 else 1
        if rows == list(range(rows[0], rows[0] + stride * len(rows), stride)):
            self._hidden[: len(rows)].copy_(hidden[rows[0] : rows[-1] + 1 : stride])
            return
        for index, row in enumerate(rows):
            self._hidden[index].copy_(hidden[row])

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
