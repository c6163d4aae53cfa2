"""The other kernels against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch_npu

_DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def _rms(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], gamma.float(), 1e-6).to(x.dtype)


def _tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"atol": 1e-6}


@_DTYPES
def test_rms_norm(dtype: torch.dtype) -> None:
    x, gamma = torch.randn(2, 5, 12).to(dtype), torch.randn(12).to(dtype)
    out, rstd = torch_npu.npu_rms_norm(x, gamma, 1e-6)
    assert torch.allclose(out, _rms(x, gamma), **_tolerance(dtype))
    assert rstd.shape == (2, 5, 1)
    expected = (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert torch.allclose(rstd, expected)


@_DTYPES
def test_add_rms_norm(dtype: torch.dtype) -> None:
    x, y, gamma = (torch.randn(5, 12).to(dtype) for _ in range(3))
    out, rstd, total = torch_npu.npu_add_rms_norm(x, y, gamma[0], 1e-6)
    assert torch.equal(total, x + y)
    assert torch.allclose(out, _rms(x + y, gamma[0]), **_tolerance(dtype))
    assert rstd.shape == (5, 1)


@_DTYPES
def test_swiglu(dtype: torch.dtype) -> None:
    x = torch.randn(2, 5, 14).to(dtype)
    gate, up = x.chunk(2, -1)
    expected = torch.nn.functional.silu(gate) * up
    assert torch.allclose(torch_npu.npu_swiglu(x), expected, **_tolerance(dtype))
    with pytest.raises(NotImplementedError):
        torch_npu.npu_swiglu(x, 0)


def test_the_compiled_ops_have_shapes() -> None:
    x = torch.empty(3, 8, device="meta")
    assert torch_npu.npu_rms_norm(x, x[0])[1].shape == (3, 1)
    assert [part.shape[-1] for part in torch_npu.npu_add_rms_norm(x, x, x[0])] == [8, 1, 8]
    assert torch_npu.npu_swiglu(x).shape == (3, 4)


def _complex_rotation(x: torch.Tensor, angle: torch.Tensor, neox: bool) -> torch.Tensor:
    """Rotate pairs as complex numbers; ``x`` is ``[rows, heads, size]``."""
    pairs = torch.stack(x.chunk(2, -1), -1) if neox else x.unflatten(-1, (-1, 2))
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
        torch.ones_like(angle), angle
    ).unsqueeze(1)
    out = torch.view_as_real(turned)
    return torch.cat(out.unbind(-1), -1) if neox else out.flatten(-2)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary", [8, 4])
def test_rotary_embedding(neox: bool, rotary: int) -> None:
    angles = torch.randn(20, rotary // 2)
    cache = torch.cat([angles.cos(), angles.sin()], -1)
    positions = torch.tensor([3, 0, 19, 3])
    query, key = torch.randn(4, 3 * 8), torch.randn(4, 1, 8)
    expected = []
    for tensor in (query, key):
        heads = tensor.view(4, -1, 8).clone()
        heads[..., :rotary] = _complex_rotation(heads[..., :rotary], angles[positions], neox)
        expected.append(heads.view(tensor.shape))
    torch_npu._npu_rotary_embedding(positions, query, key, 8, cache, neox)
    assert torch.allclose(query, expected[0], atol=1e-6)
    assert torch.allclose(key, expected[1], atol=1e-6)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_mul(mode: str) -> None:
    neox = mode == "half"
    x, angle = torch.randn(5, 3, 8), torch.randn(5, 4)
    wide = torch.cat([angle, angle], -1) if neox else angle.repeat_interleave(2, -1)
    cos, sin = wide.cos().unsqueeze(1), wide.sin().unsqueeze(1)
    out = torch_npu.npu_rotary_mul(x, cos, sin, rotary_mode=mode)
    assert torch.allclose(out, _complex_rotation(x, angle, neox), atol=1e-6)


@pytest.mark.parametrize("mode", ["half", "interleave", "interleaved"])
def test_mrope_of_text_rotates_copies(mode: str) -> None:
    angles = torch.randn(20, 2)
    cache = torch.cat([angles.cos(), angles.sin()], -1)
    positions = torch.tensor([3, 0, 19, 3])
    query, key = torch.randn(4, 3 * 8), torch.randn(4, 8)
    given = query.clone(), key.clone()
    out = torch_npu.npu_mrope(
        positions, query, key, cache, 8, mrope_section=[0, 0, 0], rotary_mode=mode
    )
    for tensor, rotated in zip((query, key), out, strict=True):
        expected = tensor.view(4, -1, 8).clone()
        expected[..., :4] = _complex_rotation(expected[..., :4], angles[positions], mode == "half")
        assert torch.allclose(rotated, expected.view(tensor.shape), atol=1e-6)
    assert torch.equal(query, given[0])
    assert torch.equal(key, given[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": torch.zeros(3, 2, dtype=torch.long)},
        {"mrope_section": [1, 1, 0]},
        {"rotary_mode": "quarter"},
        {"cache_mode": "interleave"},
    ],
    ids=["positions", "section", "rotary_mode", "cache_mode"],
)
def test_mrope_of_more_than_text_is_refused(changes: dict[str, object]) -> None:
    x = torch.ones(2, 4)
    arguments = {"positions": torch.tensor([0, 1]), "query": x, "key": x, "cos_sin_cache": x}
    with pytest.raises(NotImplementedError):
        torch_npu.npu_mrope(**{**arguments, "head_size": 4, **changes})


@pytest.mark.parametrize(
    "write", [torch_npu.npu_scatter_pa_kv_cache, torch_npu._npu_reshape_and_cache]
)
def test_cache_writes_skip_negative_slots(write) -> None:
    key, value = torch.randn(4, 2, 3), torch.randn(4, 2, 3)
    key_cache, value_cache = torch.zeros(3, 4, 2, 3), torch.zeros(3, 4, 2, 3)
    write(key, value, key_cache, value_cache, torch.tensor([5, -1, 11, 0], dtype=torch.int32))
    for rows, cache in ((key, key_cache), (value, value_cache)):
        slots = cache.view(12, 2, 3)
        assert torch.equal(slots[[5, 11, 0]], rows[[0, 2, 3]])
        assert slots.flatten(1).any(1).sum() == 3


def test_keys_and_values_may_be_interleaved_in_memory() -> None:
    memory = torch.zeros(3, 2, 4, 2, 3)
    caches = memory.unbind(1)
    key, value = torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    torch_npu.npu_scatter_pa_kv_cache(key, value, *caches, torch.tensor([5, -1, 11]))
    for rows, cache in zip((key, value), caches, strict=True):
        assert torch.equal(cache[[1, 2], [1, 3]], rows[[0, 2]])
        assert cache.flatten(2).any(2).sum() == 2


def _allowed(logits: torch.Tensor, p: float, k: int) -> torch.Tensor:
    kept = logits >= logits.sort(descending=True)[0][k - 1]
    probabilities = torch.where(kept, logits, -torch.inf).softmax(-1)
    order = probabilities.argsort(descending=True)
    needed = probabilities[order].cumsum(0) - probabilities[order] < p
    return kept & torch.zeros_like(kept).scatter_(0, order, needed)


def test_top_k_top_p() -> None:
    logits = torch.randn(6, 20)
    p = torch.tensor([0.5, 0.9, 1.0, 0.01, 0.8, 0.7])
    k = torch.tensor([20, 5, 3, 20, 1, 10])
    out = torch_npu.npu_top_k_top_p(logits, p, k)
    for row in range(6):
        allowed = _allowed(logits[row], float(p[row]), int(k[row]))
        assert torch.equal(out[row] > -torch.inf, allowed)
        assert torch.equal(out[row][allowed], logits[row][allowed])
        alone = torch_npu.npu_top_k_top_p(logits[row : row + 1], p[row : row + 1], k[row : row + 1])
        assert torch.equal(alone[0], out[row])
    assert torch.equal(torch_npu.npu_top_k_top_p(logits, None, None), logits)


def test_matmul_add() -> None:
    x, weight, out = torch.randn(5, 3).bfloat16(), torch.randn(5, 4).bfloat16(), torch.ones(3, 4)
    torch_npu._npu_matmul_add_fp32(x, weight, out)
    assert torch.allclose(out, 1 + x.float().t() @ weight.float(), atol=1e-6)


def test_formats_are_identities() -> None:
    x = torch.randn(2, 2)
    assert torch_npu.npu_format_cast(x, 29) is x
    assert torch_npu.get_npu_format(x) == 2
    assert torch_npu._C._weak_ref_tensor(x).data_ptr() == x.data_ptr()
