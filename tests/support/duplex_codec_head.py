"""A duplex session of the codec head: turns of units, whose last one may be as long as four."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstep_shim.demo.drive import Driver
from kstep_shim.demo.head import client_options
from kstep_shim.demo.scenario import GraphMode, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment
from support import repairs
from support.duplex import Session, talk_through, unit_length, unit_request

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

    if talk.mode is GraphMode.FULL_DECODE_ONLY:
        repairs.name_graph_backend()
    shape = StageShape(
        frames=frames, shim=frames > 1, max_model_len=talk.max_model_len, mode=talk.mode
    )
    driver = Driver(bring_up(shape))
    options = client_options(driver._talker)
    return talk_through(
        driver,
        lambda name, unit: _unit(name, unit, talk, options),
        talk.sessions,
        talk.units,
        talk.early,
        most_steps=150,
    )


def _unit(name: str, unit: int, talk: Talk, options: dict[str, Any]) -> Any:
    first, last = unit % talk.turn == 0, unit % talk.turn == talk.turn - 1
    options = {**options, "max_tokens": talk.limit}
    if talk.end_bias:
        options["logit_bias"] = {END: talk.end_bias}
    meta = {
        "turn_start": first,
        "turn_end": last,
        "turn_eos_token_id": TURN_EOS,
        "streaming_condition_seq": unit,
        "next_stage_prompt_len": unit_length(unit) + 1,
        "next_stage_generation_tokens": TURN_END_UNIT if last else UNIT,
        "native_duplex_segment_text": f"unit {unit}",
        **({"replace_streaming_prompt": True} if first else {}),
    }
    ending = TURN_EOS if last else None
    return unit_request(name, unit, unit // talk.turn, meta, options, TURN_EOS, ending)
