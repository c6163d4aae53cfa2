"""Sampling."""

from __future__ import annotations

import torch


def top_k_top_p(
    logits: torch.Tensor, p: torch.Tensor | None, k: torch.Tensor | None
) -> torch.Tensor:
    """Return the logits with everything outside of top-k and top-p set to minus infinity."""
    return torch.cat(
        [
            _one_row(
                logits[row].clone(),
                None if p is None else float(p[row]),
                None if k is None else int(k[row]),
            )
            for row in range(logits.shape[0])
        ]
    ).view_as(logits)


def _one_row(logits: torch.Tensor, p: float | None, k: int | None) -> torch.Tensor:
    ordered, order = logits.sort()
    if k is not None:
        ordered = ordered.masked_fill(ordered < ordered[-min(max(k, 1), len(ordered))], -torch.inf)
    if p is not None:
        outside = torch.softmax(ordered.float(), -1).cumsum(-1) <= 1 - p
        outside[-1] = False
        ordered = ordered.masked_fill(outside, -torch.inf)
    return torch.empty_like(logits).scatter_(0, order, ordered)
