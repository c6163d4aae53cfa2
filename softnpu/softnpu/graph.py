"""Graphs: a tape of device work.

While a graph is captured, a dispatch mode notes every op with its tensors. A replay runs the ops
again and copies their results into the storages of the capture, so that it reads persistent
buffers as they are at replay, and runs no code of the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from softnpu import barrier, counters, library, marks, streams

_HOST_READS = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "masked_select")
)
_ALLOCATIONS = ("aten::empty", "aten::new_empty")
_live: weakref.WeakSet[NPUGraph] = weakref.WeakSet()
_capturing: NPUGraph | None = None
_updating: TaskGroup | None = None


def tensors_in(tree: object) -> list[torch.Tensor]:
    """Return the tensors among the leaves of ``tree``."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _storage_ids(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors}


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


class ExternalEvent:
    """An event on which a graph waits and which work outside of it records."""

    def __init__(self) -> None:
        self.recorded = False

    def wait(self, stream: streams.Stream | None = None) -> None:
        """Let the graph under capture wait here."""
        if _capturing is not None:
            _capturing.tape.append(_Wait(self))

    def reset(self, stream: streams.Stream | None = None) -> None:
        """Forget the record, now or at this point of the graph under capture."""
        if _capturing is not None:
            _capturing.tape.append(_Reset(self))
        else:
            self.recorded = False

    def record(self, stream: streams.Stream | None = None) -> None:
        """Let waiting graphs go on."""
        if _capturing is not None:
            raise RuntimeError("softnpu: ExternalEvent.record() inside a capture")
        self.recorded = True
        streams.advance_all()


@dataclass
class _Wait:
    event: ExternalEvent


@dataclass
class _Reset:
    event: ExternalEvent

    def run(self) -> None:
        self.event.recorded = False


@contextmanager
def _device_work() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), barrier.forbidding():
        yield


class NPUGraph:
    """A captured graph."""

    def __init__(self, *args: object, **options: object) -> None:
        self.tape: list[Call | TaskGroup | _Wait | _Reset] = []
        self.group: TaskGroup | None = None
        self.inside_kernel = False
        self._allocated: list[torch.Tensor] = []
        _live.add(self)

    def owned_tensors(self) -> list[torch.Tensor]:
        """Return the intermediates and outputs which live in the memory of the graph."""
        calls: list[Call] = []
        for entry in self.tape:
            if isinstance(entry, Call):
                calls.append(entry)
            elif isinstance(entry, TaskGroup):
                calls.extend(entry.calls)
        return [*self._allocated, *(tensor for call in calls for tensor in call.results)]

    def add(self, call: Call) -> None:
        """Append a kernel, to the open task group if there is one."""
        if self.group is not None:
            self.group.calls.append(call)
        else:
            self.tape.append(call)

    def keep(self, tensors: Iterable[torch.Tensor]) -> None:
        """Hold memory which the capture allocated."""
        self._allocated.extend(tensors)

    def replay(self) -> None:
        """Run the graph on the current stream."""
        counters.kernels.add("NPUGraph.replay")
        streams.current_stream().submit(self._work())

    def _work(self) -> streams.Work:
        for entry in list(self.tape):
            if isinstance(entry, _Wait):
                while not entry.event.recorded:
                    yield
            else:
                with _device_work():
                    counters.kernels.replaying = True
                    try:
                        entry.run()
                    finally:
                        counters.kernels.replaying = False

    def reset(self) -> None:
        """Drop what was captured."""
        self.tape.clear()
        self._allocated.clear()

    def pool(self) -> tuple[int, int]:
        """Return the handle of the one memory pool."""
        return (0, 0)

    def debug_dump(self, *args: object, **options: object) -> None:
        """Do nothing."""


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes each op of a capture."""

    def __init__(self, graph: NPUGraph) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name: str = func._schema.name
        if self._graph.inside_kernel:
            return func(*args, **kwargs)
        if name in library.python_ops:
            # Its Python code belongs to the host: note the ops which it issues instead.
            with self:
                return library.python_ops[name](*args, **kwargs)
        if name in _HOST_READS:
            raise RuntimeError(f"softnpu: {name} reads the device on the host during a capture")
        out = func(*args, **kwargs)
        results = tensors_in(out)
        marks.spread(args, kwargs, results)
        if func._schema.is_mutable:
            self._graph.tape.append(Call(func, args, kwargs, []))
        elif name.startswith(_ALLOCATIONS):
            self._graph.keep(results)
        elif not _is_view(results, tensors_in((args, kwargs))):
            self._graph.tape.append(Call(func, args, kwargs, results))
        return out


def _is_view(results: list[torch.Tensor], arguments: list[torch.Tensor]) -> bool:
    # By storage, not by schema: under the inference mode composite ops (contiguous, reshape,
    # linear) arrive whole, and their schema says only that they may alias.
    return bool(results) and _storage_ids(results) <= _storage_ids(arguments)


class graph:  # noqa: N801 - the name of torch_npu
    """Context in which work on the device is captured."""

    def __init__(
        self, npu_graph: NPUGraph, pool: object = None, stream: object = None, **options: object
    ) -> None:
        self._graph = npu_graph
        self._stack = ExitStack()

    def __enter__(self) -> None:
        global _capturing
        if _capturing is not None:
            raise RuntimeError("softnpu: a capture inside a capture")
        counters.kernels.add("graph.capture")
        _capturing = self._graph
        self._stack.enter_context(barrier.forbidding(reads="during a capture"))
        self._stack.enter_context(_Recorder(self._graph))

    def __exit__(self, *exc_info: Any) -> None:
        global _capturing
        _capturing = None
        self._stack.close()


def is_capturing() -> bool:
    """Say whether a capture is going on."""
    return _capturing is not None


def live() -> list[NPUGraph]:
    """Return the graphs which still exist."""
    return list(_live)


def run_kernel(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a kernel: one entry of a graph under capture, new arguments in a task update."""
    if _updating is not None:
        _updating.pending.append(Call(function, args, kwargs, []))
        return None
    if streams.waiting:
        streams.refuse_behind_wait(function.__name__)
    if _capturing is None or _capturing.inside_kernel:
        return _run_now(function, args, kwargs)[0]
    _capturing.inside_kernel = True
    try:
        out, results = _run_now(function, args, kwargs)
    finally:
        _capturing.inside_kernel = False
    _capturing.add(Call(function, args, kwargs, results))
    return out


def _run_now(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, list[torch.Tensor]]:
    with _device_work():
        out = function(*args, **kwargs)
    results = tensors_in(out)
    marks.spread(args, kwargs, results)
    return out, results


def task_group_begin(stream: streams.Stream) -> None:
    """Collect the kernels which follow in the capture into one task group."""
    if _capturing is None or _capturing.group is not None:
        raise RuntimeError("softnpu: a task group needs a capture and cannot be nested")
    _capturing.group = TaskGroup()


def task_group_end(stream: streams.Stream) -> TaskGroup:
    """Close the task group and return its handle."""
    if _capturing is None or _capturing.group is None:
        raise RuntimeError("softnpu: no task group is open")
    group, _capturing.group = _capturing.group, None
    _capturing.tape.append(group)
    return group


def task_update_begin(stream: streams.Stream, handle: TaskGroup) -> None:
    """Take the kernels which follow as new arguments of the task group."""
    global _updating
    _updating = handle
    handle.pending = []


def task_update_end(stream: streams.Stream) -> None:
    """Give the task group its new arguments."""
    global _updating
    handle, _updating = _updating, None
    if handle is None:
        raise RuntimeError("softnpu: no task update is open")
    handle.rebind()
