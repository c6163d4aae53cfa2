"""The receiving half of the hand-over: a vocoder stage's adapter in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstep_shim.demo.vocoder import external_id
from support.courier import PATIENCE_S, name_of, without_names


class Receiver:
    """A vocoder stage's receiving adapter in a process of its own.

    It must be made before this process has threads, and starts with the first name that it is
    told. Every payload is in ``journal`` before the receiver asks for the next one.
    """

    def __init__(self, journal: Path, pace: float = 0.0, dies_at: tuple[str, int] | None = None):
        context = multiprocessing.get_context("fork")
        self.journal = journal
        self._inbox = context.SimpleQueue()
        arguments = (self._inbox, journal, pace, dies_at)
        self.process = context.Process(target=_receive, args=arguments, daemon=True)
        self.process.start()

    def expect(self, name: str) -> None:
        self._inbox.put(external_id(name))

    def end(self, counts: dict[str, int]) -> int | None:
        """Let it go once it has that many payloads of each request; its exit code."""
        self._inbox.put({external_id(name): count for name, count in counts.items()})
        return self.exit_code()

    def exit_code(self) -> int | None:
        self.process.join(PATIENCE_S)
        code = self.process.exitcode
        self.process.kill()
        return code

    def received(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for external, payload in _entries(self.journal):
            found.setdefault(name_of(external), []).append(without_names(payload, external))
        return found


def _receive(inbox: Any, journal: Path, pace: float, dies_at: tuple[str, int] | None) -> None:
    from vllm_omni.distributed.omni_connectors.transfer_adapter import chunk_transfer_adapter

    first = inbox.get()
    seen = _counts(journal)
    extra = {"role": "receiver", "stage_id": 2}
    adapter = chunk_transfer_adapter.OmniChunkTransferAdapter(
        SimpleNamespace(
            model_config=SimpleNamespace(
                stage_id=2,
                worker_type="generation",
                stage_connector_config={"name": "SharedMemoryConnector", "extra": extra},
            ),
            scheduler_config=SimpleNamespace(max_num_seqs=4),
        )
    )
    get = adapter.connector.get

    def get_and_note(from_stage: str, to_stage: str, get_key: str) -> Any:
        found = get(from_stage, to_stage, get_key)
        if found is not None:
            external = get_key.rsplit("_", 2)[0]
            with journal.open("ab") as file:
                pickle.dump((external, found[0]), file)
            seen[external] = seen.get(external, 0) + 1
            if dies_at == (name_of(external), seen[external]):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(pace)
        return found

    adapter.connector.get = get_and_note
    waiting: dict[str, Any] = {}
    message, heard = first, time.monotonic()
    # The last message says how many payloads there are.
    while not isinstance(message, dict):
        if message is not None:
            heard = time.monotonic()
            adapter.get_req_chunk[message] = seen.get(message, 0)
            waiting[message] = _request(message)
            adapter.load_async(waiting[message])
        _ask_again(adapter, waiting)
        message = None if inbox.empty() else inbox.get()
        if time.monotonic() > heard + PATIENCE_S:
            os._exit(2)
    while not _enough(seen, message):
        _ask_again(adapter, waiting)
        if time.monotonic() > heard + PATIENCE_S:
            os._exit(3)
    os._exit(0)


def _ask_again(adapter: Any, waiting: dict[str, Any]) -> None:
    for external in list(adapter._finished_load_reqs):
        adapter._finished_load_reqs.discard(external)
        if not adapter.is_done_receiving_chunks(external):
            adapter.load_async(waiting[external])
    time.sleep(0.001)


def _enough(seen: dict[str, int], wanted: dict[str, int]) -> bool:
    return all(seen.get(external, 0) >= count for external, count in wanted.items())


def _request(external: str) -> Any:
    return SimpleNamespace(
        request_id=external, external_req_id=external, resumable=False, prompt_token_ids=[]
    )


def _entries(journal: Path) -> Iterator[tuple[str, Any]]:
    if not journal.exists():
        return
    with journal.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def _counts(journal: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for external, _ in _entries(journal):
        found[external] = found.get(external, 0) + 1
    return found
