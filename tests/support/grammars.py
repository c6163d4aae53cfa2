"""A structured output on the codec head: a grammar that allows every second code."""

from __future__ import annotations

from typing import Any

from kstep_shim.demo.drive import Driver
from kstep_shim.demo.outcome import Outcome
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape
from kstep_shim.demo.stage import bring_up

#: Bits of the odd ids below 32, as a signed number; the codec's end, 63, is odd.
ODD_IDS = -0x55555556


class OddCodes:
    """vLLM's grammar and, because it needs no state, its backend, too."""

    def allocate_token_bitmask(self, rows: int) -> Any:
        import torch

        return torch.full((rows, 2), -1, dtype=torch.int32)

    def fill_bitmask(self, bitmask: Any, index: int) -> None:
        bitmask[index].fill_(ODD_IDS)

    def accept_tokens(self, _request_id: str, tokens: list[int]) -> bool:
        return all(token % 2 for token in tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens if self.accept_tokens("", tokens) else []

    def rollback(self, _tokens: int) -> None:
        return None

    def is_terminated(self) -> bool:
        return False

    def destroy(self) -> None:
        return None


def serve_at_1() -> Outcome:
    return _serve(1)


def serve_at_4() -> Outcome:
    return _serve(4)


def _serve(frames: int) -> Outcome:
    """A request with the grammar in the middle of one without."""
    engine = bring_up(StageShape(frames=frames, shim=frames > 1))
    from vllm.sampling_params import StructuredOutputsParams

    driver, add, grammar = Driver(engine), engine.add_request, OddCodes()
    engine.scheduler.structured_output_manager.backend = grammar

    def add_request(request: Any, *args: Any) -> None:
        if request.structured_output_request is not None:
            request.structured_output_request.grammar = grammar
        add(request, *args)

    engine.add_request = add_request
    options = {"structured_outputs": StructuredOutputsParams(regex="[odd]*")}
    speaker = RequestSpec("a", condition=4, min_tokens=60, max_tokens=60)
    odd = RequestSpec("odd", arrival=9, min_tokens=6, max_tokens=20, sampling=options)
    return driver.run(Scenario("grammar", (speaker, odd)))
