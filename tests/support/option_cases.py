"""Requests with every option that a client can send, one after another on one stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstep_shim.demo.drive import Driver
from kstep_shim.demo.outcome import Outcome
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment


@dataclass
class Answered:
    """What came out, and how many entries the logprobs of each token had."""

    outcome: Outcome
    widths: list[int]


def serve(frames: int, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Answered]:
    """Each case's request beside an ordinary one that joins later and speaks longer."""
    prepare_environment()
    import torch  # noqa: F401

    engine = bring_up(StageShape(frames=frames, shim=frames > 1))
    driver, found = Driver(engine), {}
    widths: dict[str, list[int]] = {}
    step = engine.step_fn

    def noting() -> Any:
        outputs, executed = step()
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                if output.new_logprobs is not None:
                    rows = output.new_logprobs.logprob_token_ids
                    widths.setdefault(output.request_id, []).extend(len(row) for row in rows)
        return outputs, executed

    engine.step_fn = noting
    for name, options in cases.items():
        asks = RequestSpec(f"{name}-a", min_tokens=0, eos_frame=15, sampling=dict(options))
        other = RequestSpec(f"{name}-b", arrival=2, eos_frame=30)
        outcome = driver.run(Scenario(name, (asks, other)))
        found[name] = Answered(outcome, widths.get(f"{name}-a", []))
    return found


def option_names() -> list[str]:
    """Every field of the released ``SamplingParams``."""
    import msgspec
    from vllm.sampling_params import SamplingParams

    return [field.name for field in msgspec.structs.fields(SamplingParams)]
