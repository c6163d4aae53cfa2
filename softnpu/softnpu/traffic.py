"""Tells which torch calls pass data between the host and the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch

from softnpu import marks

_CONVERSIONS = (
    "item",
    "tolist",
    "numpy",
    "__array__",
    "__dlpack__",
    "__bool__",
    "__int__",
    "__float__",
    "__complex__",
    "__index__",
    "__contains__",
    "__repr__",
    "__format__",
    "__reduce_ex__",
    "_local_scalar_dense",
    "is_nonzero",
)
_DEPENDENT_SIZES = (
    "nonzero",
    "argwhere",
    "masked_select",
    "unique",
    "unique_consecutive",
    "unique_dim",
    "_unique",
    "_unique2",
    "bincount",
)
_READS = frozenset((*_CONVERSIONS, *_DEPENDENT_SIZES, "equal", "allclose"))
_FROM_DATA = ("tensor", "as_tensor", "asarray", "new_tensor")


def is_read(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None) -> bool:
    """Say whether a call makes the host wait for values of the device.

    ``target`` is ``npu`` or ``cpu`` if the call names the device of its result.
    """
    if not any(marks.is_marked(tensor) for tensor in marks.tensors_near((*args, *kwargs.values()))):
        return False
    if name in _READS:
        return True
    if name in ("to", "cpu"):
        return target == "cpu" and marks.is_marked(args[0])
    if name in _FROM_DATA:
        data = _data(name, args, kwargs)
        if isinstance(data, (list, tuple)):
            return any(marks.is_marked(item) for item in data)
        return target == "cpu" and marks.is_marked(data)
    if name == "where":
        return len(args) + len(kwargs) == 1
    if name == "repeat_interleave":
        repeats = kwargs.get("repeats", args[min(1, len(args) - 1)])
        return marks.is_marked(repeats) and kwargs.get("output_size") is None
    if name in ("copy_", "index_copy_", "masked_scatter_"):
        return not marks.is_marked(args[0])
    return any(_reads_index(args[0], index) for index in _indices(name, args))


def is_upload(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None
) -> bool:
    """Say whether a call copies values of the host to the device."""
    if name == "to":
        return target == "npu" and not marks.is_marked(args[0])
    if name in _FROM_DATA:
        to_device = target == "npu" or (name == "new_tensor" and marks.is_marked(args[0]))
        return to_device and target != "cpu" and not marks.is_marked(_data(name, args, kwargs))
    if not args or not marks.is_marked(args[0]):
        return False
    if name == "copy_":
        return not marks.is_marked(args[1])
    if any(_uploads_index(index) for index in _indices(name, args)):
        return True
    if name in ("__setitem__", "index_put", "index_put_"):
        return not isinstance(args[2], Number) and not marks.is_marked(args[2])
    return False


def _data(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    position = 1 if name == "new_tensor" else 0
    return args[position] if len(args) > position else kwargs.get("data", kwargs.get("obj"))


def _indices(name: str, args: Sequence[Any]) -> Sequence[Any]:
    if name in ("__getitem__", "__setitem__"):
        return args[1] if isinstance(args[1], tuple) else (args[1],)
    return args[1] if name in ("index", "index_put", "index_put_") else ()


def _reads_index(indexed: torch.Tensor, index: Any) -> bool:
    if isinstance(index, slice):
        return any(marks.is_marked(bound) for bound in (index.start, index.stop, index.step))
    if not marks.is_marked(index):
        return False
    # The rows of a mask must be counted, and a single integer selects on the host.
    counted = index.dtype in (torch.bool, torch.uint8) or index.dim() == 0
    return counted or not marks.is_marked(indexed)


def _uploads_index(index: Any) -> bool:
    if isinstance(index, torch.Tensor):
        return index.dim() > 0 and not marks.is_marked(index)
    return isinstance(index, (list, np.ndarray))
