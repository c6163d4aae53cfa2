"""A duplex session: units of 25 frames and an end, one after another under one request id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kstep_shim.demo.drive import CONDITION_WIDTH, Driver
from kstep_shim.demo.head import codec_generator
from kstep_shim.demo.outcome import Outcome, RequestOutcome
from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.stage import bring_up, model_runner, prepare_environment
from kstep_shim.demo.vocoder import external_id

UNIT = 26


@dataclass
class Session:
    """What a session said, whole; and after each unit how much of it, and the generator."""

    outcome: RequestOutcome
    units: list[tuple[int, int, int, str]] = field(default_factory=list)
    widths: list[dict[str, int]] = field(default_factory=list)


def converse(
    frames: int, sessions: int, units: int, boundary: int, limit: int = UNIT, early: bool = False
) -> dict[str, Session]:
    """Serve duplex sessions of units of `limit`; every `boundary`-th one starts a turn.

    Units come when the one before has ended, or `early`, while it speaks.
    """
    prepare_environment()
    import torch  # noqa: F401

    driver = Driver(bring_up(StageShape(frames=frames, shim=frames > 1, max_model_len=2048)))
    return talk_through(
        driver,
        lambda name, unit: _unit(name, unit, unit % boundary == 0, limit),
        sessions,
        units,
        early,
    )


def talk_through(
    driver: Driver,
    make_unit: Callable[[str, int], Any],
    sessions: int,
    units: int,
    early: bool,
    most_steps: int = 100,
) -> dict[str, Session]:
    """Serve `sessions` side by side, two steps apart, `units` of each; `most_steps` per unit."""
    engine = driver._engine
    names = [f"d{number}" for number in range(sessions)]
    found = {name: Session(RequestOutcome()) for name in names}
    driver._outcome = Outcome({name: found[name].outcome for name in names}, [])
    sent = dict.fromkeys(names, 0)
    for step in range(most_steps * units):
        for number, name in enumerate(names):
            request = engine.scheduler.requests.get(name)
            waits = request is None or request.status.name == "WAITING_FOR_STREAMING_REQ"
            speaks = early and sent[name] == len(found[name].units) + 1
            if sent[name] < units and (waits or speaks) and step >= 2 * number:
                engine.add_request(make_unit(name, sent[name]))
                sent[name] += 1
        before = {name: len(found[name].outcome.tokens) for name in names}
        driver._step()
        for name in names:
            _note_unit(driver, found[name], name, before[name])
        if all(len(session.units) == units for session in found.values()):
            break
    for session in found.values():
        session.widths = [dict(record.widths) for record in driver._outcome.steps]
    return found


def assert_same(
    expected: dict[str, Session], actual: dict[str, Session], frames: int, units: int
) -> None:
    """Sessions of so many units equal one frame per step, and did run `frames` in a step."""
    for name, session in expected.items():
        got = actual[name]
        assert len(session.units) == units
        assert got.units == session.units
        assert got.outcome.codes == session.outcome.codes
        assert got.outcome.tokens == session.outcome.tokens
        assert got.outcome.payloads == session.outcome.payloads
        hidden = zip(got.outcome.hidden, session.outcome.hidden, strict=True)
        assert all(bool((a == b).all()) for a, b in hidden)
        assert any(frames in widths.values() for widths in got.widths)


def _note_unit(driver: Driver, session: Session, name: str, before: int) -> None:
    outcome = session.outcome
    if outcome.finish_reason is None or len(outcome.tokens) == before:
        return
    generator = codec_generator(driver._talker, model_runner(driver._engine), name)
    state = "" if generator is None else hashlib.sha256(generator.get_state().numpy()).hexdigest()
    counts = (len(outcome.tokens), len(outcome.codes), len(outcome.payloads))
    session.units.append((*counts, state))
    outcome.finish_reason = None


def _unit(name: str, unit: int, boundary: bool, limit: int) -> Any:
    options = {"max_tokens": limit, "stop_token_ids": [1], "temperature": 0.0}
    meta = {"turn_start": boundary, "turn_end": False}
    return unit_request(name, unit, unit, meta, options)


def unit_length(unit: int) -> int:
    """Text ids of a unit."""
    return 3 + unit % 4


def unit_request(
    name: str,
    unit: int,
    turn: int,
    meta: dict[str, Any],
    options: dict[str, Any],
    ids_below: int = 100,
    last_id: int | None = None,
) -> Any:
    """A unit of random text ids, the last of which may be given."""
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    length = unit_length(unit)
    generator = torch.Generator().manual_seed(1000 * unit + 7)
    ids = torch.randint(0, ids_below, (length,), generator=generator)
    if last_id is not None:
        ids[-1] = last_id
    return OmniRequest(
        request_id=name,
        external_req_id=external_id(name),
        prompt_token_ids=[0] * (length + 1),
        resumable=True,
        sampling_params=SamplingParams(min_tokens=0, detokenize=False, **options),
        pooling_params=None,
        model_intermediate_buffer={
            "ids": {"tts": ids},
            "hidden_states": {"tts": torch.randn(length, CONDITION_WIDTH, generator=generator)},
            "meta": meta,
            "duplex": {"epoch": 0, "turn_id": turn},
            "native_duplex": True,
            "request_id": name,
            "global_request_id": [name],
        },
    )
