"""A duplex session of the codec head: turns of units, whose last one may be as long as four."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from kstep_shim.demo.drive import CONDITION_WIDTH, Driver
from kstep_shim.demo.head import client_options, codec_generator
from kstep_shim.demo.outcome import Outcome, RequestOutcome
from kstep_shim.demo.scenario import GraphMode, StageShape
from kstep_shim.demo.stage import bring_up, model_runner, prepare_environment
from kstep_shim.demo.vocoder import external_id
from support.duplex import Session

#: Tokens of a unit, its end included, and of one that ends a turn.
UNIT, TURN_END_UNIT = 26, 104
END, TURN_EOS = 63, 99


@dataclass(frozen=True)
class Talk:
    """What is served: units per turn, their limit, and how likely the codec's end is.

    Units come when the one before has ended, or `early`, while it speaks.
    """

    sessions: int = 2
    units: int = 9
    turn: int = 3
    limit: int = 2048
    end_bias: float = 0.0
    early: bool = False
    mode: GraphMode = GraphMode.EAGER
    max_model_len: int = 2048


def converse(frames: int, talk: Talk) -> dict[str, Session]:
    """Serve the sessions side by side; unit n of each may last as long as it wants to."""
    prepare_environment()
    import torch  # noqa: F401

    shape = StageShape(
        frames=frames, shim=frames > 1, max_model_len=talk.max_model_len, mode=talk.mode
    )
    engine = bring_up(shape)
    driver = Driver(engine)
    names = [f"d{number}" for number in range(talk.sessions)]
    found = {name: Session(RequestOutcome()) for name in names}
    driver._outcome = Outcome({name: found[name].outcome for name in names}, [])
    sent = dict.fromkeys(names, 0)
    for step in range(150 * talk.units):
        for number, name in enumerate(names):
            request = engine.scheduler.requests.get(name)
            waits = request is None or request.status.name == "WAITING_FOR_STREAMING_REQ"
            speaks = talk.early and sent[name] == len(found[name].units) + 1
            if sent[name] < talk.units and (waits or speaks) and step >= 2 * number:
                engine.add_request(_unit(name, sent[name], talk, client_options(driver._talker)))
                sent[name] += 1
        before = {name: len(found[name].outcome.tokens) for name in names}
        driver._step()
        for name in names:
            _note_unit(driver, engine, found[name], name, before[name])
        if all(len(session.units) == talk.units for session in found.values()):
            break
    for session in found.values():
        session.widths = [dict(record.widths) for record in driver._outcome.steps]
    return found


def _note_unit(driver: Driver, engine: Any, session: Session, name: str, before: int) -> None:
    outcome = session.outcome
    if outcome.finish_reason is None or len(outcome.tokens) == before:
        return
    generator = codec_generator(driver._talker, model_runner(engine), name)
    state = hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()
    counts = (len(outcome.tokens), len(outcome.codes), len(outcome.payloads))
    session.units.append((*counts, state))
    outcome.finish_reason = None


def _unit(name: str, unit: int, talk: Talk, options: dict[str, Any]) -> Any:
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    first, last = unit % talk.turn == 0, unit % talk.turn == talk.turn - 1
    length = 3 + unit % 4
    generator = torch.Generator().manual_seed(1000 * unit + 7)
    ids = torch.randint(0, TURN_EOS, (length,), generator=generator)
    if last:
        ids[-1] = TURN_EOS
    if talk.end_bias:
        options = {**options, "logit_bias": {END: talk.end_bias}}
    meta = {
        "turn_start": first,
        "turn_end": last,
        "turn_eos_token_id": TURN_EOS,
        "streaming_condition_seq": unit,
        "next_stage_prompt_len": length + 1,
        "next_stage_generation_tokens": TURN_END_UNIT if last else UNIT,
        "native_duplex_segment_text": f"unit {unit}",
        **({"replace_streaming_prompt": True} if first else {}),
    }
    return OmniRequest(
        request_id=name,
        external_req_id=external_id(name),
        prompt_token_ids=[0] * (length + 1),
        resumable=True,
        sampling_params=SamplingParams(
            min_tokens=0, max_tokens=talk.limit, detokenize=False, **options
        ),
        pooling_params=None,
        model_intermediate_buffer={
            "ids": {"tts": ids},
            "hidden_states": {"tts": torch.randn(length, CONDITION_WIDTH, generator=generator)},
            "meta": meta,
            "duplex": {"epoch": 0, "turn_id": unit // talk.turn},
            "native_duplex": True,
            "request_id": name,
            "global_request_id": [name],
        },
    )
