"""What a K-frame loop over the codec head needs, each with a case and a way to switch it off.

A case is served with everything in place, where it equals one frame per step, and with one guard
switched off, where it must not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape

#: Ids of which every second draw is one; the codec's end (63) is among them.
MANY_STOPS = tuple(range(1, 64, 2))


def penalty() -> Scenario:
    """The Talker's own penalty, over a window of codes that grows inside a step."""
    options = {"repetition_penalty": 1.5, "temperature": 0.2}
    spec = RequestSpec("penalty-a", max_tokens=40, min_tokens=40, sampling=options)
    return Scenario("penalty", (spec, RequestSpec("penalty-b", arrival=1, max_tokens=20)))


def ceiling() -> Scenario:
    """The codec's own end at every offset, which the minimum of the sampler would take away."""
    specs = (RequestSpec(f"ceiling-{n}", min_tokens=50, eos_frame=n) for n in range(9, 13))
    empty = RequestSpec("ceiling-empty", condition=0, min_tokens=50, arrival=30)
    return Scenario("ceiling", (*specs, empty))


def minimum() -> Scenario:
    """So many stop tokens that a request ends with its minimum or soon after it, at any offset."""
    options = {"stop_token_ids": list(MANY_STOPS)}
    specs = (
        RequestSpec(f"minimum-{n}", condition=n, min_tokens=n, max_tokens=60, sampling=options)
        for n in range(7, 15)
    )
    return Scenario("minimum", tuple(specs))


def counted() -> Scenario:
    """Penalties of the engine, which count the request's output list."""
    options = {"presence_penalty": 1.5, "frequency_penalty": 1.0}
    return Scenario("counted", (RequestSpec("counted-a", max_tokens=30, sampling=options),))


def endings() -> Scenario:
    """A limit and a stop token of the client's at every offset of a step."""
    options = {"stop_token_ids": list(MANY_STOPS)}
    limits = (RequestSpec(f"endings-limit{n}", max_tokens=n) for n in range(9, 13))
    stops = (
        RequestSpec(f"endings-stop{n}", n, min_tokens=n, sampling=options) for n in range(7, 11)
    )
    return Scenario("endings", (*limits, *stops))


def top_k() -> Scenario:
    """A request that asks for the two likeliest codes, which one frame per step does not heed."""
    options = {"top_k": 2, "top_p": 1.0}
    before = RequestSpec("top_k-before", max_tokens=8)
    spec = RequestSpec("top_k-a", max_tokens=30, arrival=12, sampling=options)
    return Scenario("top_k", (before, spec), max_steps=80)


CASES = {
    case.name: case for case in (penalty(), ceiling(), minimum(), counted(), endings(), top_k())
}
SHAPE = StageShape(frames=4, max_num_seqs=8)


def same_drafts(_head: Any, _rows: Any, drafts: list[list[int]]) -> list[list[int]]:
    """Drafts of 0, as a stop row has them."""
    return drafts


@dataclass
class EnginesSampler:
    """A runner that samples a frame as the stock stack samples a drafted step: by the engine."""

    runner: Any

    def _sample(self, logits: Any, _: Any) -> Any:
        metadata = self.runner.input_batch.sampling_metadata
        return self.runner.sampler(logits=logits, sampling_metadata=metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)


def sampled_by_the_engine(tail: Any, runner: Any) -> None:
    """In place of the constructor of a frame tail."""
    tail.stock___init__(EnginesSampler(runner))


def count_aside(row: Any, token: int | None = None) -> None:
    """Count an id, seen or not, where the processors do not look."""
    if token is None:
        return
    if not row.ids:
        request = row.request
        row.request = SimpleNamespace(
            sampling_params=request.sampling_params,
            num_prompt_tokens=request.num_prompt_tokens,
            output_token_ids=list(request.output_token_ids),
        )
    row.stock_take(token)


def never(*_: Any, **__: Any) -> bool:
    return False


def minimum_first(row: Any) -> bool:
    """The order of 0.26: no stop is looked at below the minimum."""
    params = row.request.sampling_params
    if len(row.request.output_token_ids) < params.min_tokens:
        return False
    return bool(row.stock__ends())


def raise_for_good(wrapped: Any, runner: Any, args: Any, kwargs: Any) -> Any:
    """In place of `bookkeeping.keep_codes`: the vocabulary is not taken away again."""
    runner.input_batch.vocab_size = int(runner.get_model().talker._num_audio_tokens)
    return wrapped(*args, **kwargs)


def pass_through(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


def rewrapped(patch: Any, qualname: str, wrapper: Any) -> Any:
    """The same patch with another wrapper around the method that `qualname` ends with."""
    targets = [
        replace(t, wrapper=wrapper) if t.qualname.endswith(qualname) else t for t in patch.targets
    ]
    return replace(patch, targets=tuple(targets))


def rows_of_the_head(guard: str | None = None) -> list[tuple[int, int, list[int]]]:
    """By step: tokens scheduled, requests, and the rows of every call of the wide head."""
    from kstep_shim.demo.drive import Driver
    from kstep_shim.demo.stage import bring_up, talker_wrapper
    from support import mutants

    mutants.switch_off(guard)
    engine = bring_up(replace(SHAPE, shim=True))
    driver, calls = Driver(engine), list[int]()
    head = talker_wrapper(engine).talker.head_code[0]
    head.register_forward_hook(lambda _module, inputs, _output: calls.append(len(inputs[0])))
    found, step = [], driver._step

    def counted_step() -> None:
        calls.clear()
        step()
        widths, _ = driver._scheduled_widths()
        found.append((sum(widths.values()), len(widths), list(calls)))

    driver._step = counted_step
    driver.run(endings())
    return found


def ids_counted_twice(guard: str | None = None) -> list[tuple[int, int]]:
    """After every step: the ids that the runner counts for a request, and those that it has."""
    from kstep_shim.demo.drive import Driver
    from kstep_shim.demo.stage import bring_up, model_runner
    from support import mutants

    mutants.switch_off(guard)
    engine = bring_up(replace(SHAPE, shim=True))
    driver, found = Driver(engine), list[tuple[int, int]]()
    runner, step = model_runner(engine), driver._step

    def compared_step() -> None:
        step()
        for name, outcome in driver._outcome.requests.items():
            if name in runner.requests:
                found.append((len(runner.requests[name].output_token_ids), len(outcome.tokens)))

    driver._step = compared_step
    driver.run(counted())
    return found
