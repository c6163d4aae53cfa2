"""One frame of the device tail for all rows: eager, or a captured CUDA graph per row count."""

from __future__ import annotations

import torch
from torch import Tensor

from kstep_shim.frames.codec import Codec, CodecTable
from kstep_shim.frames.notices import process_notices


class TailKernel:
    """Runs `Codec.advance` and `Codec.embed` on the rows of a step.

    On CUDA the operations of all rows are captured once per row count, each row on a stream of its
    own: rows must not be batched, but they may overlap. The random noise is drawn outside, because
    every request owns a generator.

    Attributes
    ----------
    noise : list of Tensor
        ``[1, vocabulary]`` float32 per row, filled by the caller before each frame.
    embeds : Tensor
        ``[rows, width]``, the next frame's embeddings after `run`.
    """

    def __init__(self, codec: Codec, table: CodecTable) -> None:
        self._codec, self._table = codec, table
        weight = codec.talker.emb_code[0].weight
        device = codec.is_end.device
        self.noise = [
            torch.ones(1, codec.vocabulary, dtype=torch.float32, device=device)
            for _ in range(table.rows)
        ]
        self.embeds = torch.zeros(table.rows, weight.shape[1], dtype=weight.dtype, device=device)
        self._hidden = torch.zeros_like(self.embeds)
        self._rows = [table.row(index) for index in range(table.rows)]
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
            self._advance_all(self._count)
        else:
            graph.replay()

    def _gather(self, hidden: Tensor, rows: list[int]) -> None:
        stride = rows[1] - rows[0] if len(rows) > 1 else 1
        if rows == list(range(rows[0], rows[0] + stride * len(rows), stride)):
            self._hidden[: len(rows)].copy_(hidden[rows[0] : rows[-1] + 1 : stride])
            return
        for index, row in enumerate(rows):
            self._hidden[index].copy_(hidden[row])

    def _advance_all(self, count: int) -> None:
        for index in range(count):
            self._advance(index)
        self._table.frame.add_(1)

    def _advance(self, index: int) -> None:
        row, one = self._rows[index], slice(index, index + 1)
        self._codec.advance(self._hidden[one], self.noise[index], row, self._table.frame)
        self.embeds[one].copy_(self._codec.embed(row))

    def _capture(self, count: int) -> torch.cuda.CUDAGraph | None:
        while len(self._streams) < count:
            self._streams.append(torch.cuda.Stream())
        try:
            self._overlapped(count)  # libraries make their handles on first use
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._overlapped(count)
        except RuntimeError as error:
            process_notices.notify(
                "tail capture", f"frame tail runs without a captured graph: {error}"
            )
            return None
        return graph

    def _overlapped(self, count: int) -> None:
        main = torch.cuda.current_stream()
        for index in range(count):
            self._streams[index].wait_stream(main)
            with torch.cuda.stream(self._streams[index]):
                self._advance(index)
        for stream in self._streams[:count]:
            main.wait_stream(stream)
        self._table.frame.add_(1)
