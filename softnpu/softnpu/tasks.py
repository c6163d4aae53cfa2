"""Kernels and events, inside of graphs and outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from softnpu import barrier, marks, streams, tape

_updating: tape.TaskGroup | None = None


class ExternalEvent:
    """An event on which a graph waits and which work outside of it records."""

    def __init__(self) -> None:
        self._flag = tape.Flag()

    def wait(self, stream: streams.Stream | None = None) -> None:
        """Let the graph under capture wait here."""
        if tape.capturing is not None:
            tape.capturing.entries.append(tape.Wait(self._flag))

    def reset(self, stream: streams.Stream | None = None) -> None:
        """Forget the record, now or at this point of the graph under capture."""
        reset = tape.Reset(self._flag)
        if tape.capturing is not None:
            tape.capturing.entries.append(reset)
        else:
            reset.run()

    def record(self, stream: streams.Stream | None = None) -> None:
        """Let waiting graphs go on."""
        if tape.capturing is not None:
            raise RuntimeError("softnpu: ExternalEvent.record() inside a capture")
        self._flag.is_set = True
        streams.advance_all()


def run_kernel(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a kernel: one entry of a graph under capture, new arguments in a task update."""
    if _updating is not None:
        _updating.pending.append(tape.Call(function, args, kwargs, []))
        return None
    if streams.waiting:
        streams.refuse_behind_wait(function.__name__)
    capturing = tape.capturing
    if capturing is None or capturing.inside_kernel:
        return _run_now(function, args, kwargs)[0]
    capturing.inside_kernel = True
    try:
        out, results = _run_now(function, args, kwargs)
    finally:
        capturing.inside_kernel = False
    capturing.add_kernel(tape.Call(function, args, kwargs, results))
    return out


def _run_now(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, list[torch.Tensor]]:
    with barrier.device_work():
        out = function(*args, **kwargs)
    results = tape.tensors_in(out)
    marks.spread(args, kwargs, results)
    return out, results


def group_begin(stream: streams.Stream) -> None:
    """Collect the kernels which follow in the capture into one task group."""
    if tape.capturing is None or tape.capturing.group is not None:
        raise RuntimeError("softnpu: a task group needs a capture and cannot be nested")
    tape.capturing.group = tape.TaskGroup()


def group_end(stream: streams.Stream) -> tape.TaskGroup:
    """Close the task group and return its handle."""
    if tape.capturing is None or tape.capturing.group is None:
        raise RuntimeError("softnpu: no task group is open")
    group, tape.capturing.group = tape.capturing.group, None
    tape.capturing.entries.append(group)
    return group


def update_begin(stream: streams.Stream, handle: tape.TaskGroup) -> None:
    """Take the kernels which follow as new arguments of the task group."""
    global _updating
    _updating = handle
    handle.pending = []


def update_end(stream: streams.Stream) -> None:
    """Give the task group its new arguments."""
    global _updating
    handle, _updating = _updating, None
    if handle is None:
        raise RuntimeError("softnpu: no task update is open")
    handle.rebind()
