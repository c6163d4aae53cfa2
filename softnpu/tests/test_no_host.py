"""The block in which nothing passes between the host and the device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch_npu

import softnpu

_Action = Callable[[SimpleNamespace], object]


@pytest.fixture
def on() -> SimpleNamespace:
    """Some tensors on the device, and ``h`` and ``hi`` on the host."""
    x = torch.arange(32.0, device="npu").view(4, 8)
    return SimpleNamespace(
        x=x,
        mask=x > 3,
        index=torch.tensor([0, 2], device="npu"),
        scalar=torch.tensor(2, device="npu"),
        h=torch.ones(4, 8),
        hi=torch.tensor([0, 1]),
        layer=torch.nn.Linear(8, 8, device="npu").requires_grad_(False),
        generator=torch.Generator("npu"),
    )


_READS: dict[str, _Action] = {
    "item": lambda on: on.x[0, 0].item(),
    "bool": lambda on: bool(on.scalar),
    "if": lambda on: 1 if (on.x > 0).all() else 0,
    "int": lambda on: int(on.scalar),
    "float": lambda on: float(on.scalar),
    "range": lambda on: range(on.scalar),
    "tolist": lambda on: on.x.tolist(),
    "numpy": lambda on: on.x.numpy(),
    "array": lambda on: np.asarray(on.x),
    "repr": lambda on: repr(on.x),
    "format": lambda on: f"{on.scalar}",
    "contains": lambda on: 3 in on.x,
    "cpu": lambda on: on.x.cpu(),
    "to_cpu": lambda on: on.x.to("cpu"),
    "to_cpu_async": lambda on: on.x.to(torch.device("cpu"), non_blocking=True),
    "to_a_host_tensor": lambda on: on.x.to(on.h),
    "copy_to_the_host": lambda on: on.h.copy_(on.x),
    "tensor_of_tensors": lambda on: torch.tensor([on.scalar, on.scalar]),
    "nonzero": lambda on: on.x.nonzero(),
    "where": lambda on: torch.where(on.mask),
    "mask": lambda on: on.x[on.mask],
    "mask_set": lambda on: on.x.__setitem__(on.mask, 0.0),
    "masked_select": lambda on: on.x.masked_select(on.mask),
    "scalar_index": lambda on: on.x[on.scalar],
    "slice": lambda on: on.x[: on.scalar],
    "narrow": lambda on: on.x.narrow(0, 0, on.scalar),
    "index_the_host": lambda on: on.h[on.index],
    "equal": lambda on: torch.equal(on.x, on.x),
    "allclose": lambda on: torch.allclose(on.x, on.x),
    "unique": lambda on: torch.unique(on.index),
    "repeat_interleave": lambda on: torch.repeat_interleave(on.x, on.index.repeat(2), 0),
    "size_of_a_tensor": lambda on: torch.arange(on.scalar, device="npu"),
    "derived": lambda on: (on.layer(on.x) @ on.x.t()).argmax().item(),
    "compiled": lambda on: torch.compile(lambda x: x + 1, backend="eager")(on.x)[0, 0].item(),
    "lengths_of_attention": lambda on: _attend(on, on.index + 1),
}
_UPLOADS: dict[str, _Action] = {
    "copy": lambda on: on.x.copy_(on.h),
    "copy_async": lambda on: on.x.copy_(on.h, non_blocking=True),
    "set": lambda on: on.x.__setitem__(0, on.h[0]),
    "to_npu": lambda on: on.h.to("npu"),
    "npu": lambda on: on.h.npu(),
    "tensor": lambda on: torch.tensor([1, 2], device="npu"),
    "as_tensor": lambda on: torch.as_tensor(np.ones(3), device="npu"),
    "new_tensor": lambda on: on.x.new_tensor([1.0]),
    "host_index": lambda on: on.x[on.hi],
    "list_index": lambda on: on.x[[0, 1]],
    "array_index": lambda on: on.x[np.array([0, 1])],
}


def _attend(on: SimpleNamespace, lengths: object) -> object:
    cache = torch.zeros(4, 16, 2, 8, device="npu")
    return torch_npu.npu_fused_infer_attention_score(
        query=on.x.view(2, 2, 8),
        key=cache,
        value=cache,
        block_table=torch.zeros(2, 2, dtype=torch.int32, device="npu"),
        block_size=16,
        input_layout="TND",
        actual_seq_lengths=[1, 2],
        actual_seq_lengths_kv=lengths,
        num_heads=2,
        num_key_value_heads=2,
        sparse_mode=3,
    )


_ALLOWED: dict[str, _Action] = {
    "constructors": lambda on: torch.zeros(3, device="npu") + torch.full((3,), 2.0, device="npu"),
    "arange": lambda on: torch.arange(4, device="npu"),
    "index": lambda on: on.x[on.index],
    "gather": lambda on: on.x.gather(1, on.index[:, None]),
    "where": lambda on: torch.where(on.mask, on.x, 0.0),
    "set_number": lambda on: on.x.__setitem__((0, slice(1, 3)), 1.0),
    "set_rows": lambda on: on.x.__setitem__(on.index, on.x[:2].clone()),
    "index_copy": lambda on: on.x.index_copy_(0, on.index, on.x[:2].clone()),
    "copy": lambda on: on.x.copy_(on.x + 1),
    "masked_fill": lambda on: on.x.masked_fill_(on.mask, 0),
    "sampling": lambda on: torch.multinomial(on.x.softmax(-1), 1, generator=on.generator),
    "exponential": lambda on: on.x.exponential_(generator=on.generator),
    "linear": lambda on: on.layer(on.x).argmax(-1),
    "dtype": lambda on: on.x.to(torch.float16),
    "to_itself": lambda on: on.x.to("npu"),
    "sizes": lambda on: on.x.shape[0] + on.x.dim() + on.x.numel() + len(on.x),
    "iterate": lambda on: [row + 1 for row in on.x],
    "repeat_interleave": lambda on: torch.repeat_interleave(
        on.x, on.index.repeat(2), 0, output_size=4
    ),
    "host_only": lambda on: (on.h[on.h > 0].tolist(), on.hi[0].item(), on.h.numpy(), repr(on.h)),
    "attention": lambda on: _attend(on, [3, 4]),
    "rotary": lambda on: torch_npu._npu_rotary_embedding(
        on.index, on.x[:2, :4], on.x[2:, :4], 4, torch.ones(9, 4, device="npu"), True
    ),
    "cache": lambda on: torch_npu.npu_scatter_pa_kv_cache(
        on.x.view(4, 2, 4), on.x.view(4, 2, 4), *torch.zeros(2, 1, 9, 2, 4, device="npu"),
        torch.arange(-1, 3, device="npu"),
    ),
    "norm": lambda on: torch_npu.npu_add_rms_norm(on.x, on.x, on.x[0]),
    "replay": lambda on: on.graph.replay(),
}  # fmt: skip


@pytest.mark.parametrize("name", _READS | _UPLOADS)
def test_a_transfer_raises_inside_and_works_outside(name: str, on: SimpleNamespace) -> None:
    action = (_READS | _UPLOADS)[name]
    what = "reads the device" if name in _READS else "copies to the device"
    with softnpu.no_host(), pytest.raises(softnpu.HostReadError, match=what):
        action(on)
    action(on)


@pytest.mark.parametrize("name", _ALLOWED)
def test_work_on_the_device_is_allowed(name: str, on: SimpleNamespace) -> None:
    on.graph = torch.npu.NPUGraph()
    with torch.npu.graph(on.graph):
        on.x * 2
    with softnpu.no_host():
        _ALLOWED[name](on)


def test_a_result_inside_of_the_block_is_on_the_device(on: SimpleNamespace) -> None:
    with softnpu.no_host():
        result = on.layer(on.x).softmax(-1)[1:]
        with pytest.raises(softnpu.HostReadError):
            result.tolist()
    assert len(result.tolist()) == 3


def test_compiled_code_may_first_be_met_inside(on: SimpleNamespace) -> None:
    compiled = torch.compile(lambda x: x * x + 3, backend="aot_eager", fullgraph=True)
    with softnpu.no_host():
        result = compiled(on.x)
        with pytest.raises(softnpu.HostReadError):
            result.sum().item()


def test_blocks_nest_and_end_with_an_error(on: SimpleNamespace) -> None:
    with pytest.raises(KeyError), softnpu.no_host(), softnpu.no_host():
        raise KeyError
    assert on.scalar.item() == 2
    with softnpu.no_host():
        with softnpu.no_host():
            pass
        with pytest.raises(softnpu.HostReadError):
            on.scalar.item()


def test_the_block_concerns_its_thread(on: SimpleNamespace) -> None:
    read = []
    thread = threading.Thread(target=lambda: read.append(on.scalar.item()))
    with softnpu.no_host():
        thread.start()
        thread.join()
    assert read == [2]


def test_no_reads_lets_uploads_pass(on: SimpleNamespace) -> None:
    with softnpu.no_reads():
        assert on.h.to("npu").shape == (4, 8)
        with pytest.raises(softnpu.HostReadError, match="no_reads"):
            on.x.tolist()
