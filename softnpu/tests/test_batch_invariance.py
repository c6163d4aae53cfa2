"""A row of a result does not depend on the rows which are computed with it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_npu

_DTYPES = [torch.float32, torch.bfloat16]
_WIDTHS = [7, 64, 100]
Rows = Callable[[torch.Tensor], torch.Tensor]


def _check(function: Rows, rows: torch.Tensor) -> None:
    """Compare each row of each batch, at each position, with the row on its own."""
    alone = torch.cat([function(row.clone()) for row in rows.split(1)])
    for size in range(1, len(rows) + 1):
        assert torch.equal(function(rows[:size]), alone[:size])
    assert torch.equal(function(rows.flip(0)), alone.flip(0))
    # Neither does it depend on where the rows lie in memory.
    apart = torch.empty(len(rows), rows.shape[1] + 3, dtype=rows.dtype)[:, 1:-2].copy_(rows)
    assert torch.equal(function(apart), alone)


@pytest.fixture(params=_WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=_DTYPES, ids=str)
def rows(request: pytest.FixtureRequest, width: int) -> torch.Tensor:
    return torch.randn(33, width, generator=torch.Generator().manual_seed(width)).to(request.param)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(rows: torch.Tensor, width: int, bias: bool) -> None:
    layer = torch.nn.Linear(width, 96, bias=bias, dtype=rows.dtype).requires_grad_(False)
    _check(layer, rows)
    with torch.inference_mode():
        _check(layer, rows)
    wide = layer(rows.float().to(rows.dtype)).float()
    expected = torch.nn.functional.linear(
        rows.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double()
    )
    assert torch.allclose(wide.double(), expected, rtol=1e-2, atol=1e-2)


def test_products(rows: torch.Tensor, width: int) -> None:
    matrix = torch.randn(width, 50).to(rows.dtype)
    bias = torch.randn(50).to(rows.dtype)
    _check(lambda x: torch.mm(x, matrix), rows)
    _check(lambda x: x @ matrix, rows)
    _check(lambda x: torch.addmm(bias, x, matrix, beta=0.3, alpha=1.7), rows)
    _check(lambda x: torch.mm(x, matrix, out=torch.empty(0, dtype=x.dtype)), rows)
    _check(lambda x: torch.zeros(len(x), 50, dtype=x.dtype).addmm_(x, matrix), rows)


def test_linear_of_three_dimensions(rows: torch.Tensor, width: int) -> None:
    layer = torch.nn.Linear(width, 20, dtype=rows.dtype).requires_grad_(False)
    assert torch.equal(layer(rows[:32].view(4, 8, width)).flatten(0, 1), layer(rows[:32]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_linear(backend: str) -> None:
    layer = torch.nn.Linear(64, 96).requires_grad_(False)
    rows = torch.randn(33, 64)
    compiled = torch.compile(lambda x: layer(x) + 0, backend=backend, fullgraph=True)
    for size in (2, 3, 8, 17, 33):
        assert torch.equal(compiled(rows[:size]), layer(rows)[:size])


def test_gradients_still_flow() -> None:
    layer = torch.nn.Linear(4, 3)
    layer(torch.ones(2, 4)).sum().backward()
    assert torch.equal(layer.weight.grad, torch.full((3, 4), 2.0))
    assert torch.equal(layer.bias.grad, torch.full((3,), 2.0))


def test_rms_norm(rows: torch.Tensor, width: int) -> None:
    gamma = torch.randn(width).to(rows.dtype)
    _check(lambda x: torch_npu.npu_rms_norm(x, gamma)[0], rows)
    _check(lambda x: torch_npu.npu_rms_norm(x, gamma)[1], rows)


def test_add_rms_norm(rows: torch.Tensor, width: int) -> None:
    gamma = torch.randn(width).to(rows.dtype)
    for part in range(3):
        _check(lambda x, part=part: torch_npu.npu_add_rms_norm(x, x * 2, gamma)[part], rows)


def test_swiglu(rows: torch.Tensor) -> None:
    _check(torch_npu.npu_swiglu, torch.cat([rows, rows.flip(0)], -1))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sum", "cumsum", "argmax"])
def test_reductions_of_torch(rows: torch.Tensor, name: str) -> None:
    _check(lambda x: getattr(torch, name)(x, -1), rows)


@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding(neox: bool) -> None:
    cache = torch.randn(50, 6)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        query, key = x[:, 1:19].clone(), x[:, 19:].clone()
        positions = x[:, 0].long()
        torch_npu._npu_rotary_embedding(positions, query, key, 6, cache, neox)
        return torch.cat([query, key], -1)

    rows = torch.cat([torch.randint(0, 50, (33, 1)).float(), torch.randn(33, 24)], -1)
    _check(rotate, rows)


def test_mrope() -> None:
    cache = torch.randn(50, 6)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        rotated = torch_npu.npu_mrope(x[:, 0].long(), x[:, 1:19], x[:, 19:], cache, 6)
        return torch.cat(rotated, -1)

    rows = torch.cat([torch.randint(0, 50, (33, 1)).float(), torch.randn(33, 24)], -1)
    _check(rotate, rows)
