"""A process's report on disk, kept up to date while it serves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import util
from typing import Final

from kstep_shim import report
from kstep_shim.counters import counters
from kstep_shim.report import Report

INTERVAL_S: Final = 1.0


class StatusFile:
    """Writes ``<pid>.json`` at once, whenever a counter has changed, and at the end.

    The last is not certain (a killed process says no more), so the middle is what an operator
    reads. A thread does it: the engine's step must not wait for a disk.

    Parameters
    ----------
    directory
        Where; it is made when it is not there.
    make_report
        Asked for the report each time, in any thread.
    """

    def __init__(self, directory: str, make_report: Callable[[], Report]) -> None:
        self._directory = directory
        self._make_report = make_report
        self._exit: util.Finalize | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def keep(self) -> None:
        """Write now and from now on. A forked child calls this afresh."""
        self.write()
        if self._exit is None or not self._exit.still_active():
            # Unlike atexit, this also runs at the end of a process that multiprocessing forked.
            self._exit = util.Finalize(None, self.write, exitpriority=0)
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._follow, args=(self._stop,), name="kstep-shim-status", daemon=True
            )
            self._thread.start()

    def write(self) -> None:
        """Write the report as it is now."""
        report.write(self._make_report(), self._directory)

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        if self._exit is not None:
            self._exit.cancel()
            self._exit = None

    def _follow(self, stop: threading.Event) -> None:
        written = counters().snapshot()
        while not stop.wait(INTERVAL_S):
            now = counters().snapshot()
            if now != written:
                self.write()
                written = now
