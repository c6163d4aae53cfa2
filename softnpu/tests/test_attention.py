"""Attention against plain torch, and its independence of the shape of the call."""

from __future__ import annotations

import pytest
import torch
import torch_npu

_BLOCK = 4
_SIZE = 8


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Paged:
    """Keys and values of some requests, in a paged cache as well."""

    def __init__(self, lengths: list[int], kv_heads: int, *, flat: bool = False) -> None:
        self.lengths, self.kv_heads = lengths, kv_heads
        self.keys = [_random(n, kv_heads, _SIZE, seed=1 + n) for n in lengths]
        self.values = [_random(n, kv_heads, _SIZE, seed=91 + n) for n in lengths]
        per_request = max(-(-n // _BLOCK) for n in lengths) + 1
        order = torch.randperm(len(lengths) * per_request).view(len(lengths), per_request)
        self.block_table = order.int()
        self.key = torch.full((order.numel(), _BLOCK, kv_heads, _SIZE), torch.nan)
        self.value = self.key.clone()
        for request, length in enumerate(lengths):
            for position in range(length):
                block, offset = order[request, position // _BLOCK], position % _BLOCK
                self.key[block, offset] = self.keys[request][position]
                self.value[block, offset] = self.values[request][position]
        if flat:
            self.key, self.value = self.key.flatten(2), self.value.flatten(2)

    def arguments(self) -> dict[str, object]:
        return {
            "key": self.key,
            "value": self.value,
            "block_table": self.block_table,
            "block_size": _BLOCK,
            "actual_seq_lengths_kv": self.lengths,
        }

    def contiguous(self) -> dict[str, object]:
        return {
            "key": torch.cat(self.keys),
            "value": torch.cat(self.values),
            "actual_seq_lengths_kv": torch.tensor(self.lengths).cumsum(0).tolist(),
        }


def _ends(counts: list[int]) -> list[int]:
    return torch.tensor(counts).cumsum(0).tolist()


def _fia(query: torch.Tensor, counts: list[int], kv: dict[str, object], kv_heads: int, **options):
    return torch_npu.npu_fused_infer_attention_score(
        query=query,
        input_layout="TND",
        actual_seq_lengths=_ends(counts),
        num_heads=query.shape[1],
        num_key_value_heads=kv_heads,
        scale=_SIZE**-0.5,
        **kv,
        **options,
    )[0]


def _reference(query, counts, cache, mode=3, band=10**9) -> torch.Tensor:
    """Masked attention of torch."""
    out, start = [], 0
    for count, length, keys, values in zip(
        counts, cache.lengths, cache.keys, cache.values, strict=True
    ):
        rows, start = query[start : start + count], start + count
        last = torch.arange(count)[:, None] + length - count
        position = torch.arange(length)[None]
        mask = torch.ones(count, length, dtype=torch.bool)
        if mode in (3, 4):
            mask = position <= last
        if mode == 4:
            mask &= position >= last - band
        out.append(
            torch.nn.functional.scaled_dot_product_attention(
                rows.transpose(0, 1).double(),
                keys.transpose(0, 1).double(),
                values.transpose(0, 1).double(),
                attn_mask=mask,
                enable_gqa=True,
            )
            .transpose(0, 1)
            .float()
        )
    return torch.cat(out)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("layout", ["paged", "flat", "contiguous"])
@pytest.mark.parametrize("mode", [0, 3, 4])
def test_against_plain_torch(heads: tuple[int, int], layout: str, mode: int) -> None:
    counts, cache = [1, 5, 3, 2], Paged([9, 5, 12, 2], heads[1], flat=layout == "flat")
    query = _random(sum(counts), heads[0], _SIZE)
    kv = cache.contiguous() if layout == "contiguous" else cache.arguments()
    out = _fia(query, counts, kv, heads[1], sparse_mode=mode, pre_tokens=3, next_tokens=0)
    assert torch.allclose(out, _reference(query, counts, cache, mode, 3), atol=1e-6)


def test_low_precision_accumulates_in_fp32() -> None:
    cache = Paged([30], 2)
    query = _random(1, 4, _SIZE).bfloat16()
    kv = cache.arguments()
    kv["key"], kv["value"] = kv["key"].bfloat16(), kv["value"].bfloat16()
    cache.keys = [keys.bfloat16() for keys in cache.keys]
    cache.values = [values.bfloat16() for values in cache.values]
    out = _fia(query, [1], kv, 2, sparse_mode=3)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, _reference(query, [1], cache).bfloat16())


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
@pytest.mark.parametrize("count", [2, 4, 16])
def test_many_rows_equal_single_rows_bit_for_bit(
    heads: tuple[int, int], count: int, flat: bool
) -> None:
    for length in range(count, count + 14):
        cache = Paged([length], heads[1], flat=flat)
        query = _random(count, heads[0], _SIZE)
        together = _fia(query, [count], cache.arguments(), heads[1], sparse_mode=3)
        prompt = _fia(query, [count], cache.contiguous(), heads[1], sparse_mode=3)
        assert torch.equal(together, prompt)
        for row in range(count):
            kv = cache.arguments() | {"actual_seq_lengths_kv": [length - count + 1 + row]}
            alone = _fia(query[row : row + 1].clone(), [1], kv, heads[1], sparse_mode=3)
            assert torch.equal(together[row : row + 1], alone)


def test_requests_do_not_depend_on_each_other() -> None:
    counts, cache = [2, 4, 1], Paged([7, 11, 3], 2)
    query = _random(7, 4, _SIZE)
    together = _fia(query, counts, cache.arguments(), 2, sparse_mode=3)
    start = 0
    for request, count in enumerate(counts):
        kv = cache.arguments() | {
            "block_table": cache.block_table[request : request + 1],
            "actual_seq_lengths_kv": [cache.lengths[request]],
        }
        rows = slice(start, start + count)
        assert torch.equal(_fia(query[rows], [count], kv, 2, sparse_mode=3), together[rows])
        start += count


def test_padding_requests_and_rows_give_zeros() -> None:
    cache = Paged([6, 1], 2)
    query = _random(5, 4, _SIZE)
    table = torch.zeros(4, cache.block_table.shape[1], dtype=torch.int32)
    table[:2] = cache.block_table
    kv = cache.arguments() | {"block_table": table, "actual_seq_lengths_kv": [6, 1, 0, 0]}
    out = _fia(query, [2, 2, 0, 1], kv, 2, sparse_mode=3)
    assert torch.allclose(out[:2], _reference(query[:2], [2, 0], cache), atol=1e-6)
    assert not out[2].any()  # two rows against one key: no key is left for the first
    assert out[3].any()
    assert not out[4].any()


def test_out_is_written_in_place() -> None:
    cache, query = Paged([6, 5], 2), _random(2, 4, _SIZE)
    out, lse = torch.full((2, 4 * _SIZE), 7.0), torch.empty(1)
    arguments = {
        "query": query,
        "input_layout": "TND",
        "actual_seq_lengths": [1, 2],
        "num_heads": 4,
        "num_key_value_heads": 2,
        "scale": _SIZE**-0.5,
        "sparse_mode": 3,
        **cache.arguments(),
    }
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(**arguments)
    torch_npu.npu_fused_infer_attention_score.out(**arguments, workspace=workspace, out=[out, lse])
    expected = torch_npu.npu_fused_infer_attention_score(**arguments)[0]
    assert torch.equal(out.view(2, 4, _SIZE), expected)


def test_paged_attention() -> None:
    cache, query = Paged([6, 5, 9], 2), _random(3, 4, _SIZE)
    out = torch.empty_like(query)
    arguments = {
        "query": query,
        "key_cache": cache.key,
        "value_cache": cache.value,
        "num_kv_heads": 2,
        "num_heads": 4,
        "scale_value": _SIZE**-0.5,
        "block_table": cache.block_table,
        "context_lens": torch.tensor(cache.lengths),
        "out": out,
    }
    workspace = torch_npu._npu_paged_attention_get_workspace(**arguments)
    torch_npu._npu_paged_attention(**arguments, workspace=workspace)
    assert torch.allclose(out, _reference(query, [1, 1, 1], cache), atol=1e-6)
    assert torch.equal(out, _fia(query, [1, 1, 1], cache.arguments(), 2, sparse_mode=3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actual_seq_lengths_kv": [3]}, "lengths differ"),
        ({"actual_seq_lengths": [1, 3]}, "query rows"),
        ({"actual_seq_lengths": [3, 2]}, "must not fall"),
        ({"block_table": torch.zeros(1, 3, dtype=torch.int32)}, "block table"),
    ],
)
def test_the_device_would_refuse(changes: dict[str, object], message: str) -> None:
    cache = Paged([3, 4], 2)
    arguments = {
        "query": _random(2, 4, _SIZE),
        "input_layout": "TND",
        "actual_seq_lengths": [1, 2],
        "num_heads": 4,
        "num_key_value_heads": 2,
        **cache.arguments(),
        **changes,
    }
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_fused_infer_attention_score(**arguments)


@pytest.mark.parametrize(
    "option", [{"input_layout": "BSH"}, {"sparse_mode": 2}, {"key_antiquant_scale": 1}]
)
def test_what_is_not_implemented_raises(option: dict[str, object]) -> None:
    arguments = {"input_layout": "TND", "actual_seq_lengths": [1], "num_heads": 2} | option
    with pytest.raises(NotImplementedError):
        torch_npu.npu_fused_infer_attention_score(
            query=_random(1, 2, _SIZE), **Paged([3], 2).arguments(), **arguments
        )
