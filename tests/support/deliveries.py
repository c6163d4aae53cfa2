"""Speeches sent to a receiver in another process that is slow, dies, or comes back."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kstep_shim.demo import drive
from kstep_shim.demo.outcome import Outcome
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment
from support import hand_over_cases
from support.courier import Courier, left_behind
from support.hand_over_cases import Speech
from support.receiver import Receiver

NO_EOS = 10_000


@dataclass(frozen=True)
class Delivery:
    """Speeches sent one after another, and what the receiver does meanwhile.

    ``behind`` is the sending thread's lag in steps (``None``: it runs as it likes), ``pace`` what
    the receiver sleeps after each payload. It is killed with the second payload of speech
    ``dies_at``; another takes over before speech ``back_at``.
    """

    speeches: tuple[Speech, ...]
    behind: int | None = 0
    pace: float = 0.0
    dies_at: int | None = None
    back_at: int | None = None


@dataclass
class Delivered:
    """Payloads by speech, as they were sent and as they arrived, and the receivers' exit codes."""

    sent: list[list[Any]]
    received: list[list[Any]]
    exit_codes: list[int | None]


def deliver(frames: int, deliveries: Sequence[Delivery]) -> tuple[list[Delivered], list[str]]:
    """Serve every delivery at K = `frames`; also what stayed in shared memory at the end."""
    with tempfile.TemporaryDirectory() as directory:
        # A process with threads must not fork, so all receivers come first.
        journals = [Path(directory, str(number)) for number in range(len(deliveries))]
        receivers = [_receivers(*pair) for pair in zip(deliveries, journals, strict=True)]
        bench = hand_over_cases.make_bench(frames)
        adapter = bench.scheduler.chunk_transfer_adapter
        found = [_deliver(bench, frames, *pair) for pair in zip(deliveries, receivers, strict=True)]
        adapter.shutdown()
        return found, left_behind()


def _receivers(delivery: Delivery, journal: Path) -> list[Receiver]:
    dies_at = None if delivery.dies_at is None else (_name(journal, delivery.dies_at), 2)
    found = [Receiver(journal, delivery.pace, dies_at)]
    if delivery.back_at is not None:
        found.append(Receiver(journal))
    return found


def _name(journal: Path, number: int) -> str:
    return f"w{journal.name}x{number}"


def _deliver(bench: Any, frames: int, delivery: Delivery, receivers: list[Receiver]) -> Delivered:
    adapter = bench.scheduler.chunk_transfer_adapter
    courier = Courier(adapter, delivery.behind)
    journal, at_work = receivers[0].journal, receivers[0]
    names: list[str] = []
    for number, speech in enumerate(delivery.speeches):
        if number == delivery.back_at:
            receivers[0].exit_code()
            at_work = receivers[1]
            for name in names:
                at_work.expect(name)
        names.append(_name(journal, number))
        at_work.expect(names[-1])
        hand_over_cases.serve_one(bench, courier, speech, frames, delivery.behind or 0, names[-1])
    courier.finish()
    at_work.end({name: len(payloads) for name, payloads in courier.sent.items()})
    arrived = at_work.received()
    return Delivered(
        [courier.sent.get(name, []) for name in names],
        [arrived.get(name, []) for name in names],
        [receiver.exit_code() for receiver in receivers],
    )


def speak(frames: int, step: int, behind: int | None) -> tuple[Outcome, dict[str, list[Any]]]:
    """Speech of the real Talker with each ending, at K = `frames`, and what the receiver got.

    The client that leaves does so after three steps of `step` frames.
    """
    prepare_environment()
    import torch  # noqa: F401

    with tempfile.TemporaryDirectory() as directory:
        receiver = Receiver(Path(directory, "journal"))
        engine = bring_up(StageShape(frames=frames, shim=frames > 1))
        courier = Courier(engine.scheduler.chunk_transfer_adapter, behind)
        with mock.patch.object(drive, "VocoderEnd", return_value=courier):
            driver = drive.Driver(engine)
        scenario = Scenario("endings", _endings(frames, step))
        for request in scenario.requests:
            receiver.expect(request.request_id)
        outcome = driver.run(scenario)
        courier.finish()
        code = receiver.end({name: len(payloads) for name, payloads in courier.sent.items()})
        engine.scheduler.chunk_transfer_adapter.shutdown()
        assert (code, left_behind()) == (0, [])
        return outcome, receiver.received()


def _endings(frames: int, step: int) -> tuple[RequestSpec, ...]:
    """The first one is alone until it leaves; the others speak together."""
    leaves = 3 * step // frames
    return (
        RequestSpec("leaves", condition=9, eos_frame=NO_EOS, abort_step=leaves),
        RequestSpec("drawn", condition=4, arrival=leaves + 1),
        RequestSpec("ceiling", condition=5, arrival=leaves + 1, eos_frame=NO_EOS),
        RequestSpec("limit", condition=6, arrival=leaves + 1, max_tokens=29, eos_frame=NO_EOS),
    )
