"""A stream beside the main one, for what the next forward or the next draw need not wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Aside:
    """Work beside the main stream on CUDA; elsewhere it runs where it is issued.

    Each piece of work has a mark, which the main stream can wait for.

    Parameters
    ----------
    device : torch.device
        Where the work runs.
    marks : str
        The names of the kinds of work.
    """

    def __init__(self, device: torch.device, *marks: str) -> None:
        on_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_cuda else None
        self._events = {mark: torch.cuda.Event() for mark in marks} if on_cuda else {}

    def follow(self) -> None:
        """Let what comes next beside wait for what the main stream was given so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())

    @contextmanager
    def work(self, mark: str, follow: bool = True) -> Iterator[None]:
        """A block whose work goes beside the main stream, under this mark."""
        if self._stream is None:
            yield
            return
        if follow:
            self.follow()
        with torch.cuda.stream(self._stream):
            yield
            self._events[mark].record(self._stream)

    def wait(self, mark: str) -> None:
        """Let what comes next on the main stream wait for the latest work under this mark."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_event(self._events[mark])

    def join(self) -> None:
        """Let what comes next on the main stream wait for all of it."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
