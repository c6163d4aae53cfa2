"""Streams and events.

Eager work is done at once. Only the replay of a graph can wait: it is a generator which yields
while an event it needs has not been recorded.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_streams: weakref.WeakSet[Stream] = weakref.WeakSet()
Work = Generator[None, None, None]
_DONE = object()

waiting: set[Stream] = set()
"""Streams in which a replay waits for an event."""


class Stream:
    """A queue of replays."""

    def __init__(self, device: object = None, priority: int = 0, **options: object) -> None:
        self._queue: deque[Work] = deque()
        self.device_index = 0
        self.stream_id = id(self) & 0xFFFF
        self.npu_stream = id(self)
        _streams.add(self)

    @property
    def device(self) -> torch.device:
        """Return the device."""
        return torch.device("npu", self.device_index)

    def submit(self, work: Work) -> None:
        """Queue work and run as much of the queue as can run."""
        self._queue.append(work)
        self.advance()

    def advance(self) -> bool:
        """Run what can run; return whether the queue is empty now."""
        while self._queue:
            # A replay writes to tensors of the inference mode whoever resumes it.
            with torch.inference_mode():
                done = next(self._queue[0], _DONE) is _DONE
            if not done:
                waiting.add(self)
                return False
            self._queue.popleft()
        waiting.discard(self)
        return True

    def query(self) -> bool:
        """Say whether all work is done."""
        return not self._queue

    def synchronize(self) -> None:
        """Wait for the work; raise where a device would hang."""
        if not self.advance():
            raise RuntimeError(
                "softnpu: synchronize() would never return: "
                "a graph waits for an ExternalEvent which nobody records"
            )

    def wait_stream(self, other: Stream) -> None:
        """Do nothing: eager work is done at once."""

    def wait_event(self, event: Event) -> None:
        """Do nothing: eager work is done at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event on this stream."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _stack().append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _stack().pop()


class Event:
    """An event of eager work, which is over when it is recorded."""

    def __init__(self, *args: object, **options: object) -> None:
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Note the time."""
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def reset(self, stream: Stream | None = None) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that the work is done."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds between two recorded events."""
        return (end._time - self._time) * 1e3


_default = Stream()
_local = threading.local()


def _stack() -> list[Stream]:
    if not hasattr(_local, "stack"):
        _local.stack = [_default]
    stack: list[Stream] = _local.stack
    return stack


def current_stream(device: object = None) -> Stream:
    """Return the stream of this thread."""
    return _stack()[-1]


def default_stream(device: object = None) -> Stream:
    """Return the default stream."""
    return _default


def set_stream(stream: Stream) -> None:
    """Make ``stream`` the current one."""
    _stack()[-1] = stream


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Make ``stream`` the current one inside the block."""
    if stream is None:
        yield
        return
    with stream:
        yield


def refuse_behind_wait(name: str) -> None:
    """Raise if work is issued to a stream in which a replay waits.

    A device would queue it, but here it would overtake the replay.
    """
    if current_stream() in waiting:
        raise RuntimeError(
            f"softnpu: {name} is issued behind a graph which waits for an ExternalEvent; "
            "record the event first"
        )


def advance_all() -> None:
    """Resume every stream whose wait may be over."""
    for each in list(_streams):
        each.advance()


def synchronize(*args: Any, **options: Any) -> None:
    """Wait for the work of all streams."""
    for each in list(_streams):
        each.synchronize()
