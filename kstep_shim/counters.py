"""Counters of one process: what ran with K frames, what was declined, and why.

This module imports nothing of the installing half, so the frame code may use it freely.
"""

from __future__ import annotations

from kstep_shim._logging import LOGGER

DECLINED = "declined: "


class Counters:
    """Named totals; adding costs one dictionary update."""

    def __init__(self) -> None:
        self._totals: dict[str, int] = {}

    def increment(self, name: str, by: int = 1) -> None:
        """Add `by` to the total called `name`."""
        self._totals[name] = self._totals.get(name, 0) + by

    def decline(self, reason: str) -> None:
        """Count a step that did not run with K frames; each distinct reason is logged once."""
        name = DECLINED + reason
        if name not in self._totals:
            LOGGER.info("kstep_shim: a step runs with one frame: %s", reason)
        self.increment(name)

    def get(self, name: str) -> int:
        """Return one total, 0 when nothing was added to it."""
        return self._totals.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """Return a copy of all totals, sorted by name."""
        return dict(sorted(self._totals.items()))

    def clear(self) -> None:
        """Forget every total (a forked child starts at zero)."""
        self._totals.clear()


_COUNTERS = Counters()


def counters() -> Counters:
    """Return the counters of this process."""
    return _COUNTERS
