"""Attention: fused infer attention score (FIA) in the layout TND, and paged attention.

Each query row attends a slice of its own keys. Masking a common score matrix would give the same
numbers, but other bits for other shapes, and a row must not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_BAND_MODES = (3, 4)


def fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    atten_mask: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    input_layout: str = "BSH",
    block_size: int = 0,
    actual_seq_lengths: Sequence[int] | torch.Tensor,
    actual_seq_lengths_kv: Sequence[int] | torch.Tensor,
    num_key_value_heads: int = 0,
    num_heads: int = 1,
    scale: float = 1.0,
    sparse_mode: int = 0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    workspace: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention of each query row, and an unused log-sum-exp.

    ``actual_seq_lengths`` holds the end of each request among the query rows. The lengths of the
    keys are counts when a block table says where the keys lie, and ends otherwise. The sparse
    modes are 0 (all keys), 3 (causal, aligned to the last key) and 4 (a band of it, ``pre_tokens``
    wide). The mask is the compressed one of the mode and is not read.
    """
    if input_layout != "TND" or sparse_mode not in (0, *_BAND_MODES):
        raise NotImplementedError(f"softnpu: FIA {input_layout=} {sparse_mode=}")
    unsupported = [name for name, given in options.items() if given is not None]
    if unsupported:
        raise NotImplementedError(f"softnpu: FIA {unsupported}")
    query_ends = _host_ints(actual_seq_lengths)
    key_lengths = _host_ints(actual_seq_lengths_kv)
    _check(query, block_table, query_ends, key_lengths)
    kv_heads = num_key_value_heads or num_heads
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    query_start = key_start = 0
    for request, (query_end, key_length) in enumerate(zip(query_ends, key_lengths, strict=True)):
        if block_table is not None:
            used = block_table[request, : -(-key_length // block_size)].long()
            keys, values = key[used].flatten(0, 1), value[used].flatten(0, 1)
            count = key_length
        else:
            keys, values = key[key_start:key_length], value[key_start:key_length]
            count, key_start = key_length - key_start, key_length
        if count > 0:  # no keys: a padding request, whose rows stay zero
            keys, values = _heads_first(keys, kv_heads), _heads_first(values, kv_heads)
        for row in range(query_start, query_end):
            first, last = 0, count
            if sparse_mode in _BAND_MODES:
                last = count - (query_end - 1 - row)
            if sparse_mode == 4:
                first = max(0, last - 1 - pre_tokens)
            if first < last:
                out[row] = _attend(query[row], keys[:, first:last], values[:, first:last], scale)
        query_start = query_end
    return out, torch.empty(1, dtype=torch.float32)


def fused_infer_attention_score_out(*, out: Sequence[torch.Tensor], **arguments: Any) -> None:
    """Write the attention into ``out[0]``."""
    result, _ = fused_infer_attention_score(**arguments)
    out[0].copy_(result.view_as(out[0]))


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: Sequence[int] | torch.Tensor,
    out: torch.Tensor,
    workspace: torch.Tensor | None = None,
) -> None:
    """Write into ``out`` the attention of one query row a request."""
    count = query.shape[0]
    result, _ = fused_infer_attention_score(
        query,
        key_cache,
        value_cache,
        block_table=block_table,
        input_layout="TND",
        block_size=key_cache.shape[1],
        actual_seq_lengths=range(1, count + 1),
        actual_seq_lengths_kv=_host_ints(context_lens)[:count],
        num_key_value_heads=num_kv_heads,
        num_heads=num_heads,
        scale=scale_value,
    )
    out.copy_(result.view_as(out))


def workspace(*args: object, **options: object) -> torch.Tensor:
    """Return a workspace, which no kernel here needs."""
    return torch.empty(1024, dtype=torch.uint8)


def _host_ints(lengths: Sequence[int] | torch.Tensor) -> list[int]:
    values = lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths
    return [int(value) for value in values]


def _check(
    query: torch.Tensor,
    block_table: torch.Tensor | None,
    query_ends: list[int],
    key_lengths: list[int],
) -> None:
    # The device answers each of these with error 561002.
    if len(query_ends) != len(key_lengths):
        raise RuntimeError(f"softnpu: FIA lengths differ: {query_ends} {key_lengths}")
    if not query_ends or query_ends[-1] != query.shape[0]:
        raise RuntimeError(f"softnpu: FIA has {query.shape[0]} query rows, not {query_ends}")
    if sorted(query_ends) != query_ends:
        raise RuntimeError(f"softnpu: FIA query lengths must not fall: {query_ends}")
    if block_table is not None and block_table.shape[0] < len(query_ends):
        raise RuntimeError(f"softnpu: FIA block table has {block_table.shape[0]} rows")


def _heads_first(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Return rows of ``heads * size`` or ``[heads, size]`` as ``[heads, length, size]``."""
    return rows.float().reshape(rows.shape[0], heads, -1).transpose(0, 1)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the attention of one row ``[heads, size]`` over ``[kv_heads, length, size]``."""
    kv_heads, _, size = keys.shape
    grouped = query.to(torch.float32, copy=True).view(kv_heads, -1, size)
    # Fresh operands, so that a product depends on the row's own shape and nothing else.
    scores = torch.bmm(grouped, keys.mT.contiguous()) * scale
    heads = torch.bmm(torch.softmax(scores, -1), values.contiguous())
    return heads.view(query.shape[0], -1)
