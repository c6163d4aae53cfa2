"""Rotary position embeddings. Products and sums only, so every element stands alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _rotate_pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool = True,
) -> None:
    """Rotate query and key in place, by the rows of the cache at their positions."""
    cos, sin = cos_sin_cache.index_select(0, positions.flatten()).float().unsqueeze(1).chunk(2, -1)
    if is_neox_style:
        cos, sin = cos.repeat(1, 1, 2), sin.repeat(1, 1, 2)
        rotate = _rotate_half
    else:
        cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        rotate = _rotate_pairs
    rotary_size = cos.shape[-1]
    for tensor in (query, key):
        heads = tensor.view(tensor.shape[0], -1, head_size)[..., :rotary_size]
        x = heads.float()
        heads.copy_(x * cos + rotate(x) * sin)


def rotary_mul(
    x: torch.Tensor, r1: torch.Tensor, r2: torch.Tensor, rotary_mode: str = "half"
) -> torch.Tensor:
    """Return ``x`` rotated by the cosines ``r1`` and the sines ``r2``."""
    rotate = {"half": _rotate_half, "interleave": _rotate_pairs}[rotary_mode]
    return x * r1 + rotate(x) * r2


def mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return query and key rotated by the rows of the cache at their positions.

    Only without sections, where a token has one position as in text.
    """
    # The second is its documented name, the third the one which vllm-ascend gives it.
    neox = {"half": True, "interleave": False, "interleaved": False}.get(rotary_mode or "half")
    if positions.dim() != 1 or any(mrope_section or ()) or neox is None or cache_mode != "default":
        raise NotImplementedError(
            f"softnpu: npu_mrope {positions.dim()=} {mrope_section=} {rotary_mode=} {cache_mode=}"
        )
    query, key = query.clone(), key.clone()
    rotary_embedding(positions, query, key, head_size, cos_sin_cache, neox)
    return query, key
