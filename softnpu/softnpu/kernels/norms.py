"""Normalisation and activation."""

from __future__ import annotations

import torch
from torch.nn.functional import silu


def rms_norm(
    x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalised rows and the reciprocal root mean squares, computed in fp32."""
    lead, width = x.shape[:-1], x.shape[-1]
    weight = gamma.float()
    rows = x.reshape(-1, width)
    out = torch.empty_like(rows)
    rstd = rows.new_empty((rows.shape[0], 1), dtype=torch.float32)
    for index in range(rows.shape[0]):
        row = rows[index].to(torch.float32, copy=True)
        scale = torch.rsqrt(row.square().mean() + epsilon)
        out[index] = row * scale * weight
        rstd[index] = scale
    return out.view(x.shape), rstd.view(*lead, 1)


def add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the normalised sum, the reciprocal root mean squares and the sum."""
    total = x1 + x2
    out, rstd = rms_norm(total, gamma, epsilon)
    return out, rstd, total


def add_rms_norm_bias(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what :func:`add_rms_norm` does, with the bias ``beta`` added to the normalised sum."""
    out, rstd, total = add_rms_norm(x1, x2, gamma, epsilon)
    return out if beta is None else out + beta, rstd, total


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return ``silu`` of the first half times the second half."""
    if dim not in (-1, x.dim() - 1):
        raise NotImplementedError("softnpu: npu_swiglu works on the last dimension only")
    gate, up = x.chunk(2, -1)
    out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    width = gate.shape[-1]
    for target, a, b in zip(
        out.view(-1, width), gate.reshape(-1, width), up.reshape(-1, width), strict=True
    ):
        target.copy_(silu(a.clone()) * b)
    return out
