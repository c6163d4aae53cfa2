"""Sampling parameters that clients send to a codec head, alone, beside others, and refused ones."""

from __future__ import annotations

from typing import Any

from kstep_shim.demo.scenario import RequestSpec, Scenario

#: Stop tokens of a client who does not name the codec's end (63).
OTHER_STOPS = [5, 24, 41]
OPTIONS: dict[str, dict[str, Any]] = {
    "deployed": {},
    "greedy": {"temperature": 0.0},
    "cool": {"temperature": 0.7},
    "warm": {"temperature": 1.3},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.2, "top_k": -1},
    "no_penalty": {"repetition_penalty": 1.0},
    "penalty": {"repetition_penalty": 2.0, "temperature": 0.4},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": -1.0, "repetition_penalty": 1.0},
    "seed": {"seed": 7},
    "stops": {"stop_token_ids": OTHER_STOPS},
    "no_stop": {"stop_token_ids": []},
    "ignore_eos": {"ignore_eos": True},
    "engine_defaults": {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "seed": 0,
    },
}
#: What vLLM does not offer together with drafts; one frame per step does.
BIASED: dict[str, dict[str, Any]] = {
    "logit_bias": {"logit_bias": {7: 3.0, 63: -100.0}},
    "logit_bias_end": {"logit_bias": {63: 2.0}, "min_tokens": 9},
    "min_p": {"min_p": 0.3, "top_p": 1.0},
}


def _spec(name: str, scenario: str, arrival: int, options: dict[str, Any]) -> RequestSpec:
    options = dict(options)
    minimum = options.pop("min_tokens", 6)
    return RequestSpec(
        f"{scenario}-{name}",
        condition=3 + arrival % 5,
        arrival=arrival,
        min_tokens=minimum,
        max_tokens=30 + arrival % 4,
        sampling=options,
    )


def pairs(options: dict[str, dict[str, Any]]) -> list[Scenario]:
    """Each of the options beside a request with those of the deployment."""
    return [
        Scenario(
            f"pair-{name}",
            (
                _spec("a", f"pair-{name}", 0, chosen),
                _spec("b", f"pair-{name}", 3, {}),
            ),
        )
        for name, chosen in options.items()
    ]


def mixed(options: dict[str, dict[str, Any]], name: str = "mixed", stride: int = 1) -> Scenario:
    """All of them in one batch, arriving one after another."""
    return Scenario(
        name,
        tuple(
            _spec(key, name, stride * i, chosen) for i, (key, chosen) in enumerate(options.items())
        ),
    )


def minimum_and_end() -> Scenario:
    """The codec's end before, at and after ``min_tokens``, beside one another."""
    pairs = [(6, 8), (50, 21), (50, 49), (50, 50), (50, 51), (52, 51), (0, 1), (9, 2)]
    return Scenario(
        "minimum_and_end",
        tuple(
            RequestSpec(f"minimum-{least}-{end}", arrival=i, min_tokens=least, eos_frame=end)
            for i, (least, end) in enumerate(pairs)
        ),
    )


def unseeded() -> Scenario:
    """Requests without a seed among seeded ones, before and behind them in the batch."""
    return Scenario(
        "unseeded",
        (
            _spec("free-0", "unseeded", 0, {"seed": None}),
            _spec("seeded-1", "unseeded", 1, {}),
            _spec("seeded-2", "unseeded", 3, {"seed": 3, "temperature": 1.2}),
            _spec("free-4", "unseeded", 4, {"seed": None, "temperature": 1.3}),
            _spec("greedy-5", "unseeded", 6, {"seed": None, "temperature": 0.0}),
        ),
    )


def refused_and_passed() -> tuple[list[str], list[dict[str, Any]]]:
    """What vLLM says to biased requests beside drafts, and what reaches stage 1 nevertheless.

    The orchestrator builds the request of a later stage by itself and asks nobody.
    """
    from types import SimpleNamespace

    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams
    from vllm_omni.engine.orchestrator import build_engine_core_request_from_tokens

    refusals = []
    for options in ({"logit_bias": {7: 3.0}}, {"min_p": 0.3}):
        try:
            SamplingParams(**options)._validate_spec_decode(SimpleNamespace())
        except VLLMValidationError as error:
            refusals.append(str(error))
        else:
            refusals.append("")
    params = SamplingParams(logit_bias={7: 3.0}, min_p=0.3)
    request = build_engine_core_request_from_tokens("r", {"prompt_token_ids": [0]}, params)
    sent = request.sampling_params
    return refusals, [{"logit_bias": sent.logit_bias, "min_p": sent.min_p}]


Logprobs = dict[str, list[Any]]


def logprobs_at_1() -> tuple[Logprobs, list[dict[str, int]]]:
    return _serve_logprobs(1)


def logprobs_at_4() -> tuple[Logprobs, list[dict[str, int]]]:
    return _serve_logprobs(4)


def _serve_logprobs(frames: int) -> tuple[Logprobs, list[dict[str, int]]]:
    """Sampled ids, their logprobs and ranks by request, and the widths of every step."""
    from kstep_shim.demo.drive import Driver
    from kstep_shim.demo.scenario import StageShape
    from kstep_shim.demo.stage import bring_up

    driver = Driver(bring_up(StageShape(frames=frames, shim=frames > 1)))
    collect, found = driver._collect, dict[str, list[Any]]()

    def kept(output: Any, prefilling: bool) -> None:
        if output.new_logprobs is not None:
            rows = zip(*(item.tolist() for item in output.new_logprobs[:3]), strict=True)
            found.setdefault(output.request_id, []).extend(rows)
        collect(output, prefilling)

    driver._collect = kept
    asking = (
        RequestSpec(
            f"b{n}", arrival=8 + n, min_tokens=20 + n, max_tokens=20 + n, sampling={"logprobs": n}
        )
        for n in (0, 1, 5)
    )
    speaker = RequestSpec("a", condition=4, min_tokens=80, max_tokens=80)
    outcome = driver.run(Scenario("logprobs", (speaker, *asking)))
    return found, [step.widths for step in outcome.steps]
