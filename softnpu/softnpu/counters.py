"""Counters of kernel calls and of calls to unimplemented things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Kernels(Counter[str]):
    """Counts kernels."""

    _paused = False

    def add(self, name: str) -> None:
        """Count one call."""
        if not self._paused:
            self[name] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the kernels which a replay runs: no host code issued them."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


kernels = Kernels()
missing: Counter[str] = Counter()
