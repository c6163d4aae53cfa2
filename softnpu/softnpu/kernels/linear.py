"""Matrix products, one row at a time.

The blocking of a matrix product depends on its number of rows, and so do the bits of each row.
Here a row is a product of the matrix with one vector, whatever comes with it. Low precision is
accumulated in fp32 and rounded once, as a cube unit does.
"""

from __future__ import annotations

import torch

_LOW_PRECISION = (torch.bfloat16, torch.float16)


def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``a @ b``."""
    return mm_out(a, b, out=a.new_empty((a.shape[0], b.shape[1])))


def mm_out(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Write ``a @ b`` into ``out``."""
    _check(a, b)
    out.resize_(a.shape[0], b.shape[1])
    return out.copy_(_rows(a, b))


def addmm(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return ``beta * bias + alpha * (a @ b)``."""
    out = a.new_empty((a.shape[0], b.shape[1]))
    return addmm_out(bias, a, b, beta=beta, alpha=alpha, out=out)


def addmm_(
    self: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Add into ``self``."""
    return addmm_out(self, a, b, beta=beta, alpha=alpha, out=self)


def addmm_out(
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: torch.Tensor,
) -> torch.Tensor:
    """Write ``beta * bias + alpha * (a @ b)`` into ``out``."""
    _check(a, b)
    product = _rows(a, b)
    if alpha != 1:
        product = product * alpha
    if beta != 0:
        # Not ``add(alpha=beta)``: a fused multiply-add would round other elements otherwise.
        product = product + (bias if beta == 1 else bias * beta)
    out.resize_(a.shape[0], b.shape[1])
    return out.copy_(product)


def _check(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, got {a.dtype}, {b.dtype}")


def _rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ``a @ b``, in fp32 where the arguments are of low precision."""
    dtype = torch.float32 if a.dtype in _LOW_PRECISION else a.dtype
    matrix = b.t().to(dtype)
    out = torch.empty((a.shape[0], b.shape[1]), dtype=dtype)
    for source, target in zip(a, out, strict=True):
        # The copy gives every row the same alignment.
        target.copy_(torch.mv(matrix, source.to(dtype, copy=True)))
    return out
