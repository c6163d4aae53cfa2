"""Graphs: what a replay does, what it does not do, and what it refuses."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
import torch_npu

import softnpu


@pytest.fixture(autouse=True)
def stream() -> Iterator[None]:
    """Give each test a stream of its own, which nothing blocks yet."""
    with torch.npu.stream(torch.npu.Stream()):
        yield


def _capture(function) -> tuple[torch.npu.NPUGraph, torch.Tensor]:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = function()
    return graph, out


def test_a_replay_reads_persistent_buffers_and_writes_the_same_output() -> None:
    x = torch.ones(3, device="npu")
    graph, out = _capture(lambda: (x * 2 + 1).relu())
    address = out.data_ptr()
    x.fill_(5)
    graph.replay()
    assert out.tolist() == [11, 11, 11]
    assert out.data_ptr() == address


def test_a_replay_does_not_see_a_fresh_input() -> None:
    holder = [torch.ones(3, device="npu")]
    graph, out = _capture(lambda: holder[0] * 2)
    holder[0] = torch.full((3,), 9.0, device="npu")
    graph.replay()
    assert out.tolist() == [2, 2, 2]


def test_a_replay_runs_no_host_code() -> None:
    calls = []
    x = torch.ones(3, device="npu")

    def forward() -> torch.Tensor:
        calls.append(1)
        return torch_npu.npu_rms_norm(x, x)[0]

    before = softnpu.kernel_calls()
    graph, _ = _capture(forward)
    for _ in range(3):
        graph.replay()
    assert calls == [1]
    after = softnpu.kernel_calls()
    changes = {name: after[name] - before.get(name, 0) for name in after}
    changes = {name: change for name, change in changes.items() if change}
    assert changes == {"graph.capture": 1, "NPUGraph.replay": 3, "npu_rms_norm": 1}


@pytest.mark.parametrize("inference", [True, False])
def test_views_composites_and_in_place_ops_are_replayed(inference: bool) -> None:
    x = torch.arange(24.0, device="npu").view(2, 3, 4)
    total = torch.zeros(4, device="npu")
    layer = torch.nn.Linear(4, 4, device="npu").requires_grad_(False)

    def forward() -> torch.Tensor:
        y = layer(x.transpose(0, 1).contiguous().reshape(6, 4)[1:5])
        buffer = torch.empty_like(y)
        buffer.copy_(y)
        total.add_(buffer[0])
        return torch.cat([buffer, y.t().contiguous()])

    with torch.inference_mode(inference):
        graph, out = _capture(forward)
        x.add_(1)
        total.zero_()
        graph.replay()
        expected_total = total.clone()
        total.zero_()
        assert torch.equal(out, forward())
        assert torch.equal(expected_total, total)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: bool(x.any()),
        lambda x: torch.equal(x, x),
    ],
)
def test_a_host_read_during_a_capture_raises(read) -> None:
    x = torch.ones(3, device="npu")
    with pytest.raises(RuntimeError, match="during a capture"):
        _capture(lambda: read(x * 2))
    assert not torch.npu.is_current_stream_capturing()
    assert read(x) is not None


def test_a_graph_is_told_when_its_capture_begins_and_ends() -> None:
    told = []

    class Told(torch.npu.NPUGraph):
        def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)
            told.append(pool)

        def capture_end(self) -> None:
            super().capture_end()
            told.append("end")

    x = torch.ones(3, device="npu")
    graph = Told()
    with torch.npu.graph(graph, pool=(0, 0)):
        out = x * 2
    x.fill_(4)
    graph.replay()
    assert out.tolist() == [8, 8, 8]
    assert told == [(0, 0), "end"]


def test_captures_do_not_nest() -> None:
    with pytest.raises(RuntimeError, match="inside a capture"):
        _capture(lambda: _capture(lambda: None))
    assert not torch.npu.is_current_stream_capturing()


class Attention:
    """One FIA call in a graph, with its arguments updated as vllm-ascend does it."""

    def __init__(self, heads: int = 2, size: int = 4, layers: int = 2) -> None:
        self.query = torch.randn(2, heads, size, device="npu")
        self.cache = torch.randn(4, 8, heads, size, device="npu")
        self.table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32, device="npu")
        self.outs = [torch.zeros_like(self.query) for _ in range(layers)]
        self.events: list[torch.npu.ExternalEvent] = []
        self.handles: list[object] = []
        self.update_stream = torch.npu.Stream()
        self.graph, self.result = _capture(self._forward)

    def issue(self, layer: int, lengths: list[int]) -> None:
        torch_npu.npu_fused_infer_attention_score.out(
            query=self.query,
            key=self.cache,
            value=self.cache,
            block_table=self.table,
            block_size=8,
            input_layout="TND",
            actual_seq_lengths=[1, 2],
            actual_seq_lengths_kv=lengths,
            num_heads=self.query.shape[1],
            num_key_value_heads=self.query.shape[1],
            sparse_mode=3,
            out=[self.outs[layer], torch.empty(1)],
        )

    def _forward(self) -> torch.Tensor:
        stream = torch.npu.current_stream()
        for layer in range(len(self.outs)):
            event = torch.npu.ExternalEvent()
            event.wait(stream)
            event.reset(stream)
            self.events.append(event)
            torch.npu.graph_task_group_begin(stream)
            self.issue(layer, [1, 1])
            self.handles.append(torch.npu.graph_task_group_end(stream))
        return sum(self.outs)

    def update(self, lengths: list[int]) -> None:
        with torch.npu.stream(self.update_stream):
            for layer, (handle, event) in enumerate(zip(self.handles, self.events, strict=True)):
                torch.npu.graph_task_update_begin(self.update_stream, handle)
                self.issue(layer, lengths)
                torch.npu.graph_task_update_end(self.update_stream)
                event.record(self.update_stream)

    def expected(self, lengths: list[int]) -> torch.Tensor:
        before = [out.clone() for out in self.outs]
        for layer in range(len(self.outs)):
            self.issue(layer, lengths)
        total = sum(self.outs)
        for out, old in zip(self.outs, before, strict=True):
            out.copy_(old)
        return total


def test_an_update_after_the_replay_reaches_it() -> None:
    attention = Attention()
    attention.graph.replay()
    assert not torch.npu.current_stream().query()
    attention.update([5, 9])
    torch.npu.current_stream().synchronize()
    assert torch.equal(attention.result, attention.expected([5, 9]))


def test_an_update_before_the_replay_reaches_it() -> None:
    attention = Attention()
    for lengths in ([5, 9], [6, 10]):
        attention.update(lengths)
        attention.graph.replay()
        torch.npu.current_stream().synchronize()
        assert torch.equal(attention.result, attention.expected(lengths))


@pytest.mark.parametrize("update_first", [True, False])
def test_one_graph_is_replayed_several_times_with_new_arguments(update_first: bool) -> None:
    attention = Attention()
    for step in range(5):
        lengths = [3 + step, 8 + step]
        if update_first:
            attention.update(lengths)
        attention.graph.replay()
        if not update_first:
            attention.update(lengths)
        # The next step's input is this one's output, on the device.
        assert torch.equal(attention.result, attention.expected(lengths))
        attention.query.copy_(attention.result.tanh())


def test_each_update_serves_one_replay() -> None:
    attention = Attention()
    attention.update([5, 9])
    attention.graph.replay()
    attention.graph.replay()
    with pytest.raises(RuntimeError, match="never return"):
        torch.npu.synchronize()
    attention.update([6, 9])
    torch.npu.synchronize()
    assert torch.equal(attention.result, attention.expected([6, 9]))


def test_a_replay_without_an_update_dead_locks_loudly() -> None:
    attention = Attention()
    attention.graph.replay()
    for wait in (torch.npu.synchronize, torch.npu.current_stream().synchronize):
        with pytest.raises(RuntimeError, match="never return"):
            wait()
    attention.update([1, 1])
    torch.npu.synchronize()


@pytest.mark.parametrize(
    "work",
    [
        lambda x, out: out + 1,
        lambda x, out: x.fill_(1),
        lambda x, out: torch_npu.npu_rotary_mul(x, x, x),
        lambda x, out: out.cpu(),
        lambda x, out: out.sum().item(),
    ],
)
def test_work_behind_a_waiting_replay_raises(work) -> None:
    attention = Attention()
    attention.graph.replay()
    with pytest.raises(RuntimeError, match="waits for an ExternalEvent"):
        work(attention.query, attention.result)
    attention.update([1, 1])
    assert work(attention.query, attention.result) is not None


def test_an_update_must_issue_the_captured_kernels() -> None:
    attention = Attention()
    stream = attention.update_stream
    torch.npu.graph_task_update_begin(stream, attention.handles[0])
    with pytest.raises(RuntimeError, match="re-issue"):
        torch.npu.graph_task_update_end(stream)
    with pytest.raises(RuntimeError, match="no task update"):
        torch.npu.graph_task_update_end(stream)
    with pytest.raises(RuntimeError, match="needs a capture"):
        torch.npu.graph_task_group_begin(stream)
    with pytest.raises(RuntimeError, match="no task group"):
        torch.npu.graph_task_group_end(stream)


def test_owned_tensors_are_what_the_graph_wrote() -> None:
    x = torch.ones(3, device="npu")
    y = torch.ones(3, device="npu")

    def forward() -> torch.Tensor:
        torch.neg(x, out=y)
        return torch_npu.npu_rotary_mul(
            (x + 1).view(1, 3).repeat(1, 2), torch.ones(6), x.new_zeros(6)
        )

    graph, out = _capture(forward)
    owned = graph.owned_tensors()
    addresses = {tensor.data_ptr() for tensor in owned}
    assert out.data_ptr() in addresses
    assert not {x.data_ptr(), y.data_ptr()} & addresses
    expected = out.clone()
    for tensor in owned:
        tensor.fill_(float("nan"))
    graph.replay()
    assert torch.equal(out, expected)


def test_live_graphs_are_weakly_known() -> None:
    gc.collect()
    before = len(softnpu.live_graphs())
    graph, _ = _capture(lambda: torch.ones(1, device="npu"))
    assert graph in softnpu.live_graphs()
    assert len(softnpu.live_graphs()) == before + 1
    del graph
    gc.collect()
    assert len(softnpu.live_graphs()) == before


def test_events_and_streams() -> None:
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() is stream
        end.record(stream)
    assert torch.npu.current_stream() is not stream
    assert end.query()
    assert start.elapsed_time(end) >= 0
    stream.wait_stream(torch.npu.default_stream())
    stream.record_event().synchronize()
    assert torch.device("npu", 0) == stream.device
