"""Marks on the memory which belongs to the device.

Host and device share one memory here. A mark on the storage tells them apart; views share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch


def storage_of(tensor: torch.Tensor) -> Any:
    """Return the storage, or None where there is none (sparse, wrapper subclasses)."""
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def is_marked(value: object) -> bool:
    """Say whether ``value`` is a tensor on the device."""
    return isinstance(value, torch.Tensor) and _has_mark(storage_of(value))


def mark(tensors: Iterable[torch.Tensor]) -> None:
    """Say that the tensors are on the device."""
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage is not None:
            storage.on_softnpu = True


def spread(
    args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Mark new memory computed from marked tensors; return the tensors which lie in it."""
    sources = [storage_of(tensor) for tensor in tensors_near(args)]
    if kwargs:
        sources += [storage_of(tensor) for tensor in tensors_near(kwargs.values())]
    if not any(_has_mark(source) for source in sources):
        return []
    new = []
    for result in results:
        storage = storage_of(result)
        if all(storage is not source for source in sources):
            new.append(result)
    mark(new)
    return new


def tensors_near(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among the values and in lists and tuples among them."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, torch.Tensor)]
    return found


def _has_mark(storage: Any) -> bool:
    return getattr(storage, "on_softnpu", False)
