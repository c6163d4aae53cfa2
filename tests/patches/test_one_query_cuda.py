"""What a one-query CUDA graph is given, with the released metadata class and no GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kstep_shim.frames.one_query_cuda import CudaBackend

ROWS, SIZE, FRAMES = 3, 4, 8


class FlashAttentionMetadataBuilder:
    """Notes what it is asked to build for, and leaves its schedule behind as the real one does."""

    def __init__(self) -> None:
        self.scheduler_metadata = torch.zeros(5, dtype=torch.int32)
        self.built: list[Any] = []

    def build(self, common_prefix_len: int, metadata: Any) -> None:
        assert common_prefix_len == 0
        self.scheduler_metadata.fill_(metadata.max_seq_len)
        self.built.append((metadata.num_reqs, metadata.max_query_len, metadata.max_seq_len))


def make_runner(builder: Any) -> Any:
    table = SimpleNamespace(
        slot_mapping=SimpleNamespace(gpu=torch.arange(32)),
        get_device_tensor=lambda count: torch.zeros(count, 4, dtype=torch.int32),
    )
    lengths = torch.tensor([40, 70, 50, 7, 7, 7], dtype=torch.int32)
    return SimpleNamespace(
        attn_groups=[[SimpleNamespace(get_metadata_builder=lambda ubatch: builder)]],
        input_batch=SimpleNamespace(block_table=[table]),
        query_start_loc=SimpleNamespace(gpu=torch.arange(0, 7 * FRAMES, FRAMES).int()),
        seq_lens=lengths.clone(),
        optimistic_seq_lens_cpu=lengths,
    )


def test_the_layout_of_a_padded_graph_and_the_lengths_of_each_frame() -> None:
    builder = FlashAttentionMetadataBuilder()
    runner = make_runner(builder)
    descriptor = SimpleNamespace(num_tokens=SIZE)
    graph = CudaBackend(runner, [SIZE]).graph(ROWS, FRAMES, descriptor, "FULL")
    assert graph.context == {"batch_descriptor": descriptor, "cudagraph_runtime_mode": "FULL"}
    for buffer, value in graph.constants:
        buffer.copy_(value)
    assert runner.query_start_loc.gpu.tolist() == [0, 1, 2, 3, 3, 40, 48]
    assert graph.slot_mapping.tolist() == [0, 1, 2, -1]
    assert graph.seq_lens.tolist() == [40, 70, 50, 0]
    for frame in range(FRAMES):
        graph.before_replay(frame)
    assert builder.built == [(SIZE, 1, 70 - FRAMES + 1 + frame) for frame in range(FRAMES)]
    assert builder.scheduler_metadata.tolist() == [70] * 5


@pytest.mark.parametrize("kind", ["FlashInferMetadataBuilder", "Mamba2AttentionMetadataBuilder"])
def test_an_unknown_back_end_has_no_one_query_graphs(kind: str) -> None:
    builder = type(kind, (), {})()
    with pytest.raises(RuntimeError, match=kind):
        CudaBackend(make_runner(builder), [SIZE])
