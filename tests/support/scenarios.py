"""The scenarios in which K frames per step must equal one."""

from __future__ import annotations

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape, staggered

#: A request that names this end is ended by the codec's ceiling or by its limit, never by EOS.
NO_EOS = 10_000


def batches(sizes: tuple[int, ...]) -> list[Scenario]:
    """One scenario per batch size, arrivals two steps apart."""
    return [staggered(size, name=f"batch{size}") for size in sizes]


def codec_eos(frames: int) -> list[Scenario]:
    """Codec EOS at every offset of a step, with a neighbour running on."""
    return [
        _pair(f"eos{end}", RequestSpec(f"eos{end}-a", eos_frame=end))
        for end in range(9, 9 + frames)
    ]


def output_limits(frames: int) -> list[Scenario]:
    """``max_tokens`` at every offset of a step, the first step included."""
    limits = sorted({*range(1, frames + 3), *range(19, 19 + frames)})
    return [
        _pair(
            f"limit{limit}",
            RequestSpec(f"limit{limit}-a", min_tokens=0, max_tokens=limit, eos_frame=NO_EOS),
        )
        for limit in limits
    ]


def limits_and_eos(frames: int) -> list[Scenario]:
    """The codec ends one frame before, at and after the request's own limit."""
    return [
        _pair(
            f"both{limit}{shift:+d}",
            RequestSpec(
                f"both{limit}{shift:+d}-a",
                min_tokens=0,
                max_tokens=limit,
                eos_frame=limit + shift,
            ),
        )
        for limit in range(19, 19 + frames)
        for shift in (-1, 0, 1)
    ]


def endings_shape(frames: int) -> StageShape:
    """A stage for endings: speech without an end runs to a stop row's ceiling, or a short context.

    A codec head has no ceiling of its own that comes before the context's end.
    """
    long = installed_head() is Head.STOP_ROW
    return StageShape(frames=frames, max_model_len=1024 if long else 128)


def codec_ceiling(frames: int) -> list[Scenario]:
    """The codec's own ceiling at every offset: draftless steps shift the phase."""
    return [
        Scenario(
            f"ceiling{shift}",
            (
                RequestSpec(f"ceiling{shift}-a", eos_frame=NO_EOS),
                RequestSpec(f"ceiling{shift}-b", condition=8, arrival=1, eos_frame=NO_EOS),
            ),
            draftless_steps=frozenset(range(4, 4 + shift)),
        )
        for shift in range(frames)
    ]


def minimum_tokens() -> list[Scenario]:
    """``min_tokens`` of 0, 6 and 50 with the codec's end before, at and after it."""
    cases = [(0, 8), (6, 8), (50, 21), (50, 49), (50, 50), (50, 51), (50, 52), (51, 50), (53, 51)]
    return [
        _pair(
            f"min{minimum}-{end}",
            RequestSpec(f"min{minimum}-{end}-a", min_tokens=minimum, eos_frame=end),
        )
        for minimum, end in cases
    ]


def empty_speech() -> list[Scenario]:
    """Requests with nothing to say, alone, beside speakers, and four at once."""
    found = []
    for minimum in (0, 6, 50):
        name = f"empty{minimum}"
        found.append(Scenario(name, (RequestSpec(name, condition=0, min_tokens=minimum),)))
        speakers = tuple(RequestSpec(f"{name}-s{i}", condition=3 + i, arrival=i) for i in range(3))
        beside = RequestSpec(f"{name}-e", condition=0, arrival=2, min_tokens=minimum)
        found.append(Scenario(f"{name}-beside", (*speakers, beside)))
    four = tuple(RequestSpec(f"empty-four{i}", condition=0, min_tokens=50) for i in range(4))
    found.append(Scenario("empty-four", four))
    found.append(Scenario("one-token", (RequestSpec("one-token", condition=1),)))
    return found


def client_sampling() -> list[Scenario]:
    """Sampling parameters that clients send: none of them may change what is spoken."""
    options = [
        {"temperature": 0.7, "seed": 7},
        {"temperature": 1.0, "top_k": 1, "seed": 3},
        {"temperature": 0.5, "top_p": 0.3, "top_k": 5, "seed": 9},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "temperature": 0.9, "seed": 1},
    ]
    return [
        _pair(f"sampling{i}", RequestSpec(f"sampling{i}-a", sampling=option))
        for i, option in enumerate(options)
    ]


def four_long_speakers() -> Scenario:
    """Four requests of 64 frames and more, for the share of steps that run K frames."""
    return Scenario(
        "four",
        tuple(
            RequestSpec(f"four-{index}", condition=4 + index, arrival=index, eos_frame=NO_EOS)
            for index in range(4)
        ),
    )


def context_edge() -> list[Scenario]:
    """Requests that reach the end of the model's context, beside one that ends before."""
    return [
        Scenario(
            "edge",
            (
                RequestSpec("edge-a", condition=8, eos_frame=NO_EOS),
                RequestSpec("edge-b", condition=5, arrival=1, eos_frame=NO_EOS),
                RequestSpec("edge-c", condition=3, arrival=2, eos_frame=12),
            ),
        )
    ]


def logprobs() -> list[Scenario]:
    """One request with logprobs beside one without; both before and after it there are others."""
    return [
        Scenario(
            "logprobs",
            (
                RequestSpec("logprobs-a", condition=4),
                RequestSpec("logprobs-b", arrival=6, max_tokens=20, sampling={"logprobs": 1}),
            ),
        )
    ]


def _pair(name: str, first: RequestSpec) -> Scenario:
    return Scenario(name, (first, RequestSpec(f"{name}-b", condition=5, arrival=1)))
