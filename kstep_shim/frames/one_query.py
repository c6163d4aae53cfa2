"""The graphs that a one-frame stage replays, captured beside the K-query graphs of an armed one.

Under a K-frame configuration the stack captures graphs with K queries per request only. A second
dispatcher, made from the same configuration without drafts, knows the graphs of one query per
request that K=1 would have, for the very sizes that K=1 would use. While it is the runner's
dispatcher, the runner's own methods capture these graphs and find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Protocol

from kstep_shim.frames.narrow_step import OneQueryGraph


class Backend(Protocol):
    """What differs between platforms."""

    def graph(self, rows: int, frames: int, descriptor: Any, mode: Any) -> OneQueryGraph:
        """The graph of `descriptor` for one step of `rows` requests and `frames` frames."""
        ...

    def parameters(self) -> Any:
        """A context in which the stack's graph parameters are those of the one-query graphs."""
        ...


class OneQueryGraphs:
    """The one-query graphs of one runner.

    Parameters
    ----------
    runner : Any
        The model runner, its K-query graphs captured.
    sizes : iterable of int
        Capture sizes as configured, before they were rounded to multiples of K.
    backend : callable
        Makes the platform's `Backend` from the runner and the sizes.
    """

    def __init__(
        self, runner: Any, sizes: Iterable[int], backend: Callable[[Any, list[int]], Backend]
    ) -> None:
        self._runner = runner
        most = runner.scheduler_config.max_num_seqs
        self.sizes = sorted({size for size in sizes if size <= most} | {most})
        self._dispatcher = _dispatcher(runner, self.sizes)
        self._backend = backend(runner, self.sizes)

    def capture(self, capture_model: Callable[[], int]) -> int:
        """Capture all of them with the runner's own method; returns the bytes that it says."""
        with self.dispatching(), self._backend.parameters():
            return capture_model()

    @contextmanager
    def dispatching(self) -> Iterator[None]:
        """A block in which the runner looks for one-query graphs and no others."""
        runner = self._runner
        usual = runner.cudagraph_dispatcher, runner.uniform_decode_query_len
        runner.cudagraph_dispatcher, runner.uniform_decode_query_len = self._dispatcher, 1
        try:
            yield
        finally:
            runner.cudagraph_dispatcher, runner.uniform_decode_query_len = usual

    @contextmanager
    def updating(self, descriptor: Any) -> Iterator[None]:
        """A block around a parameter update of the graph of `descriptor`, whosever it is."""
        if not self.holds(descriptor):
            yield
            return
        with self._backend.parameters():
            yield

    def holds(self, descriptor: Any) -> bool:
        """Whether `descriptor` names one of these graphs."""
        return any(descriptor in keys for keys in self._dispatcher.cudagraph_keys.values())

    def for_step(self, rows: int, frames: int) -> OneQueryGraph | None:
        """The graph for `rows` requests, ready for a step of `frames` frames, or ``None``."""
        mode, descriptor = self._dispatcher.dispatch(num_tokens=rows, uniform_decode=True)
        if not self.holds(descriptor):
            return None
        return self._backend.graph(rows, frames, descriptor, mode)


def _dispatcher(runner: Any, sizes: list[int]) -> Any:
    """A dispatcher as K=1 has it; the runner's configuration stays as it is."""
    mode = type(runner.compilation_config.cudagraph_mode).FULL_DECODE_ONLY
    config = copy(runner.vllm_config)
    config.speculative_config = None
    config.compilation_config = compilation = copy(runner.compilation_config)
    compilation.cudagraph_capture_sizes = sizes
    compilation.max_cudagraph_capture_size = sizes[-1]
    compilation.compile_sizes = []
    dispatcher = type(runner.cudagraph_dispatcher)(config)
    dispatcher.initialize_cudagraph_keys(mode, 1)
    return dispatcher
