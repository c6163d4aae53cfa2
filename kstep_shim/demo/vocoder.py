"""The receiving end of the hand-over: takes what the Talker stage sends to the vocoder stage."""

from __future__ import annotations

import os
from typing import Any


def external_id(request_id: str) -> str:
    """Client's name of a request. Connector keys are global on a machine: name the process, too."""
    return f"{os.getpid()}-{request_id}"


class VocoderEnd:
    """Sends and receives on the stage's own connector, after every step.

    The adapter's threads are stopped and its queue is worked off here, so that the sender is never
    behind: with a sender that lags, the stock stack may lose frames at a finish.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._received: dict[str, int] = {}
        adapter.stop_event.set()
        adapter.save_thread.join()
        adapter.recv_thread.join()

    def receive(self) -> dict[str, list[Any]]:
        """Payloads that arrived in this step, by request id, tensors as lists."""
        adapter, arrived = self._adapter, {}
        touched = {}
        while adapter._pending_save_reqs:
            task = adapter._pending_save_reqs.popleft()
            request = task.get("request")  # none where something is taken back after an abort
            if request is not None:
                touched[request.request_id] = request.external_req_id
            adapter._send_single_request(task)
        for request_id, external in touched.items():
            arrived[request_id] = list(self._drain(external))
        return arrived

    def _drain(self, external: str) -> Any:
        stage = self._adapter.connector.stage_id
        while True:
            chunk = self._received.get(external, 0)
            found = self._adapter.connector.get(
                str(stage), str(stage + 1), f"{external}_{stage}_{chunk}"
            )
            if found is None:
                return
            self._received[external] = chunk + 1
            yield _plain(found[0], external)


def _plain(value: Any, external: str) -> Any:
    """Nested lists and dicts, without the process's own name in them."""
    if isinstance(value, dict):
        return {key: _plain(item, external) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item, external) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, str):
        return value.replace(external, external.partition("-")[2])
    return value
