"""What a graph consists of: calls of ops and kernels, and waits for events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def tensors_in(tree: object) -> list[torch.Tensor]:
    """Return the tensors among the leaves of ``tree``."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@dataclass
class Call:
    """One op or kernel with its arguments, and the results to be written again.

    An op which writes into its arguments has no results of its own.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    results: list[torch.Tensor]

    def run(self) -> None:
        """Compute again into the storages of the capture."""
        new = tensors_in(self.function(*self.args, **self.kwargs))
        if not self.results:
            return
        for old, value in zip(self.results, new, strict=True):
            if old.data_ptr() != value.data_ptr():
                old.copy_(value)


@dataclass
class TaskGroup:
    """Kernels whose arguments may be changed between replays."""

    calls: list[Call] = field(default_factory=list)
    pending: list[Call] = field(default_factory=list)

    def run(self) -> None:
        """Run the kernels with their present arguments."""
        for call in self.calls:
            call.run()

    def rebind(self) -> None:
        """Give the captured kernels the arguments of the re-issued ones."""
        captured = [call.function for call in self.calls]
        if captured != [call.function for call in self.pending]:
            raise RuntimeError("softnpu: a task update must re-issue the captured kernels")
        for call, update in zip(self.calls, self.pending, strict=True):
            call.args, call.kwargs = update.args, update.kwargs
        self.pending = []


class Flag:
    """Whether an event has been recorded."""

    def __init__(self) -> None:
        self.is_set = False


@dataclass
class Wait:
    """The graph goes on when the flag is set."""

    flag: Flag


@dataclass
class Reset:
    """The graph takes the flag back."""

    flag: Flag

    def run(self) -> None:
        """Clear the flag."""
        self.flag.is_set = False


Entry = Call | TaskGroup | Wait | Reset


class Tape:
    """The work of a graph, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.group: TaskGroup | None = None
        self.inside_kernel = False
        self._allocated: list[torch.Tensor] = []

    def add_kernel(self, call: Call) -> None:
        """Append a kernel, to the open task group if there is one."""
        if self.group is not None:
            self.group.calls.append(call)
        else:
            self.entries.append(call)

    def keep(self, tensors: Iterable[torch.Tensor]) -> None:
        """Hold memory which the capture allocated."""
        self._allocated.extend(tensors)

    def owned_tensors(self) -> list[torch.Tensor]:
        """Return the tensors which live in the memory of the graph."""
        owned = list(self._allocated)
        for entry in self.entries:
            if isinstance(entry, TaskGroup):
                owned += [tensor for call in entry.calls for tensor in call.results]
            elif isinstance(entry, Call):
                owned += entry.results
        return owned

    def clear(self) -> None:
        """Drop everything."""
        self.entries.clear()
        self._allocated.clear()


capturing: Tape | None = None
"""The tape of the capture which is going on."""
