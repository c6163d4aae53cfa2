"""Traffic of the field reports that K=1 answers as it is: one scenario list per report."""

from __future__ import annotations

from kstep_shim.demo.scenario import RequestSpec, Scenario

NO_EOS = 10_000


def minimum_on_any_row() -> list[Scenario]:
    """Report 3: the codec ends around ``min_tokens``, four to a batch and alone."""
    ends = [
        RequestSpec(f"m{least}-{end}", min_tokens=least, eos_frame=end, arrival=index % 3)
        for index, (least, end) in enumerate(
            (least, end) for least in (50, 51, 53) for end in (49, 50, 51, 52, 53, 54)
        )
    ]
    fours = [tuple(ends[i] for i in range(start, len(ends), 5)) for start in range(5)]
    found = [Scenario(f"minimum-four{i}", four) for i, four in enumerate(fours)]
    alone = RequestSpec("m-alone", min_tokens=50, eos_frame=53)
    return [*found, Scenario("minimum-alone", (alone,))]


def nothing_to_say() -> list[Scenario]:
    """Report 4: an empty request beside three that speak for long."""
    speakers = tuple(
        RequestSpec(f"empty-s{i}", condition=3 + i, eos_frame=NO_EOS) for i in range(3)
    )
    empty = RequestSpec("empty-e", condition=0, min_tokens=50)
    one = RequestSpec("empty-one", condition=1, arrival=30)
    return [Scenario("empty-beside", (*speakers, empty, one))]


def limits_inside_a_step() -> list[Scenario]:
    """Report 6: every kind of ending at every offset of a step, four at a time."""
    limits = [
        RequestSpec(f"l{limit}", min_tokens=0, max_tokens=limit, eos_frame=NO_EOS)
        for limit in (1, 2, 3, 4, 5, 49, 50, 51, 52)
    ]
    ends = [RequestSpec(f"e{end}", min_tokens=0, eos_frame=end) for end in (1, 2, 18, 19, 20, 21)]
    both = [
        RequestSpec(f"b{limit}{shift:+d}", min_tokens=0, max_tokens=limit, eos_frame=limit + shift)
        for limit in (22, 23, 24, 25)
        for shift in (0, 1)
    ]
    every = [*limits, *ends, *both, RequestSpec("ceiling", eos_frame=NO_EOS)]
    return [Scenario(f"limits{i}", tuple(every[i::6])) for i in range(6) if every[i::6]]


def same_seed_everywhere() -> list[Scenario]:
    """Report 16: one request alone, among others, joining late, beside one that just ended."""

    def speaker(name: str, arrival: int = 0) -> RequestSpec:
        return RequestSpec(f"seed-{name}", condition=4, arrival=arrival, eos_frame=41)

    def other(name: str, end: int, condition: int = 6) -> RequestSpec:
        return RequestSpec(f"seed-{name}", condition=condition, min_tokens=0, eos_frame=end)

    return [
        Scenario("seed-alone", (speaker("a"),)),
        Scenario("seed-four", (speaker("b"), other("c", 30), other("d", 35, 9), other("e", 50))),
        Scenario("seed-late", (other("f", 60), speaker("g", arrival=7))),
        Scenario("seed-end", (speaker("h"), other("i", 12))),
    ]


def logprobs_in_the_batch() -> list[Scenario]:
    """Report 11: one request of four wants logprobs and ends at offset 2 of a step."""
    wants = RequestSpec(
        "log-a", min_tokens=0, max_tokens=30, eos_frame=19, sampling={"logprobs": 1}
    )
    others = tuple(
        RequestSpec(f"log-{i}", condition=4 + i, arrival=i, eos_frame=30 + i) for i in range(3)
    )
    penalties = RequestSpec(
        "log-p",
        min_tokens=0,
        eos_frame=25,
        sampling={"repetition_penalty": 1.2, "frequency_penalty": 0.4},
    )
    no_stop = RequestSpec(
        "log-n", min_tokens=0, max_tokens=26, eos_frame=15, sampling={"stop_token_ids": []}
    )
    return [
        Scenario("logprobs-four", (wants, *others)),
        Scenario("other-options", (penalties, no_stop)),
    ]


#: By report; all of them run on one stage of four rows.
BY_REPORT = {
    3: minimum_on_any_row(),
    4: nothing_to_say(),
    6: limits_inside_a_step(),
    11: logprobs_in_the_batch(),
    16: same_seed_everywhere(),
}


def everything() -> list[Scenario]:
    """All scenarios of `BY_REPORT`."""
    return [scenario for scenarios in BY_REPORT.values() for scenario in scenarios]
