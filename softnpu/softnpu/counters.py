"""Counters of kernel calls and of calls to unimplemented things."""

from __future__ import annotations

from collections import Counter


class Kernels(Counter[str]):
    """Counts kernels, but not those which a replay runs: no host code issued them."""

    replaying = False

    def add(self, name: str) -> None:
        """Count one call."""
        if not self.replaying:
            self[name] += 1


kernels = Kernels()
missing: Counter[str] = Counter()
