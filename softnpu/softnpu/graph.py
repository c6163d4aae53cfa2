"""Graphs: a tape of device work.

While a graph is captured, a dispatch mode notes every op with its tensors. A replay runs the ops
again and copies their results into the storages of the capture, so that it reads persistent
buffers as they are at replay, and runs no code of the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from softnpu import barrier, counters, library, marks, streams, tape

_HOST_READS = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "masked_select")
)
_ALLOCATIONS = ("aten::empty", "aten::new_empty")
_live: weakref.WeakSet[NPUGraph] = weakref.WeakSet()


class NPUGraph:
    """A captured graph."""

    def __init__(self, *args: object, **options: object) -> None:
        self.tape = tape.Tape()
        self._capture = ExitStack()
        _live.add(self)

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Note the work on the device from now on."""
        if tape.capturing is not None:
            raise RuntimeError("softnpu: a capture inside a capture")
        counters.kernels.add("graph.capture")
        tape.capturing = self.tape
        self._capture.enter_context(barrier.forbidding(reads="during a capture"))
        self._capture.enter_context(_Recorder(self.tape))

    def capture_end(self) -> None:
        """Stop it."""
        tape.capturing = None
        self._capture.close()

    def owned_tensors(self) -> list[torch.Tensor]:
        """Return the intermediates and outputs which live in the memory of the graph."""
        return self.tape.owned_tensors()

    def replay(self) -> None:
        """Run the graph on the current stream."""
        counters.kernels.add("NPUGraph.replay")
        streams.current_stream().submit(self._work())

    def _work(self) -> streams.Work:
        for entry in list(self.tape.entries):
            if isinstance(entry, tape.Wait):
                while not entry.flag.is_set:
                    yield
                continue
            with barrier.device_work(), counters.kernels.paused():
                entry.run()

    def reset(self) -> None:
        """Drop what was captured."""
        self.tape.clear()

    def pool(self) -> tuple[int, int]:
        """Return the handle of the one memory pool."""
        return (0, 0)

    def debug_dump(self, *args: object, **options: object) -> None:
        """Do nothing."""


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes each op of a capture."""

    def __init__(self, capturing: tape.Tape) -> None:
        super().__init__()
        self._tape = capturing

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name: str = func._schema.name
        if self._tape.inside_kernel:
            return func(*args, **kwargs)
        if name in library.python_ops:
            # Its Python code belongs to the host: note the ops which it issues instead.
            with self:
                return library.python_ops[name](*args, **kwargs)
        if name in _HOST_READS:
            raise RuntimeError(f"softnpu: {name} reads the device on the host during a capture")
        out = func(*args, **kwargs)
        results = tape.tensors_in(out)
        marks.spread(args, kwargs, results)
        if func._schema.is_mutable:
            self._tape.entries.append(tape.Call(func, args, kwargs, []))
        elif name.startswith(_ALLOCATIONS):
            self._tape.keep(results)
        elif not _is_view(results, tape.tensors_in((args, kwargs))):
            self._tape.entries.append(tape.Call(func, args, kwargs, results))
        return out


def _is_view(results: list[torch.Tensor], arguments: list[torch.Tensor]) -> bool:
    # By storage, not by schema: under the inference mode composite ops (contiguous, reshape,
    # linear) arrive whole, and their schema says only that they may alias.
    return bool(results) and _storage_ids(results) <= _storage_ids(arguments)


def _storage_ids(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors}


class graph:  # noqa: N801 - the name of torch_npu
    """Context in which work on the device is captured."""

    def __init__(
        self, npu_graph: NPUGraph, pool: object = None, stream: object = None, **options: object
    ) -> None:
        self._graph = npu_graph
        self._pool = pool

    def __enter__(self) -> None:
        self._graph.capture_begin(self._pool)

    def __exit__(self, *exc_info: Any) -> None:
        self._graph.capture_end()


def is_capturing() -> bool:
    """Say whether a capture is going on."""
    return tape.capturing is not None


def live() -> list[NPUGraph]:
    """Return the graphs which still exist."""
    return list(_live)
