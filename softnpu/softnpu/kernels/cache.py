"""Writes to the paged key and value cache."""

from __future__ import annotations

import torch


def scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    cache_mode: str = "Norm",
) -> None:
    """Write each row into its slot; a negative slot is padding and writes nothing."""
    if cache_mode != "Norm":
        raise NotImplementedError(f"softnpu: cache_mode {cache_mode!r}")
    slots = slot_mapping.long()
    used = slots >= 0
    size = key_cache.shape[1]
    # By block and offset: keys and values may be interleaved in memory, so that slots are no rows.
    block, offset = slots[used] // size, slots[used] % size
    for rows, cache in ((key, key_cache), (value, value_cache)):
        cache[block, offset] = rows[used].to(cache.dtype)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """Write each row into its slot; a negative slot is padding and writes nothing."""
    scatter_pa_kv_cache(key, value, key_cache, value_cache, slot_indices)
