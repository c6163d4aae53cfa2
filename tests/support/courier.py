"""The sending half of the hand-over: the adapter's own thread, on time or some steps late."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from kstep_shim.demo.vocoder import _plain
from support.hand_over_cases import anonymous

PATIENCE_S = 60.0


class Due(deque[Any]):
    """The adapter's queue, of which its thread sees only what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.added = self.taken = 0
        self.released: float = 0

    def append(self, task: Any) -> None:
        self.added += 1
        super().append(task)

    def popleft(self) -> Any:
        self.taken += 1
        return super().popleft()

    def __bool__(self) -> bool:
        return len(self) > 0 and self.taken < self.released


class Courier:
    """The adapter's own sending thread, kept `behind` steps late, or left alone with ``None``.

    ``sent`` has every payload that it put into the connector, by request.
    """

    def __init__(self, adapter: Any, behind: int | None) -> None:
        self.sent: dict[str, list[Any]] = {}
        self._adapter = adapter
        self._free = behind is None
        self._marks = deque([0] * (behind or 0))
        self._queue = Due()
        if self._free:
            self._queue.released = float("inf")
        self._done = 0
        self._progress = threading.Condition()
        connector, send = adapter.connector, type(adapter)._send_single_request
        put = type(connector).put

        def send_and_count(task: Any) -> None:
            try:
                send(adapter, task)
            finally:
                with self._progress:
                    self._done += 1
                    self._progress.notify()

        def put_and_note(from_stage: str, to_stage: str, put_key: str, data: Any) -> Any:
            external = put_key.rsplit("_", 2)[0]
            wire = connector.deserialize_obj(connector.serialize_obj(data))
            self.sent.setdefault(name_of(external), []).append(without_names(wire, external))
            return put(connector, from_stage, to_stage, put_key, data)

        connector.put = put_and_note
        adapter._send_single_request = send_and_count
        adapter._pending_save_reqs = self._queue

    def after_step(self) -> dict[str, list[Any]]:
        """Let the thread send what is due after a step; what arrives, arrives elsewhere."""
        if not self._free:
            self._marks.append(self._queue.added)
            self._send(self._marks.popleft())
        return {}

    receive = after_step

    def finish(self) -> None:
        """Wait until the thread has sent all the rest."""
        self._send(self._queue.added)

    def _send(self, count: int) -> None:
        self._queue.released = max(self._queue.released, count)
        with self._adapter._save_cond:
            self._adapter._save_cond.notify()
        with self._progress:
            assert self._progress.wait_for(lambda: self._done >= count, PATIENCE_S)


def left_behind() -> list[str]:
    """Segments and lock files of this process's requests."""
    mine = (f"{os.getpid()}-", f"shm_{os.getpid()}-")
    return [path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(mine)]


def name_of(external: str) -> str:
    """The request's own name, without that of its process."""
    return external.partition("-")[2]


def without_names(payload: Any, external: str) -> Any:
    """A payload as lists and dicts in which every request has the same name."""
    return anonymous(_plain(payload, external), name_of(external))
