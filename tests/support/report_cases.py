"""Jobs of single field reports that run in a stage process of their own."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstep_shim.demo.drive import Driver, build_request
from kstep_shim.demo.outcome import Outcome, RequestOutcome
from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape
from kstep_shim.demo.stage import (
    bring_up,
    engine_arguments,
    model_runner,
    prepare_environment,
    randomise_weights,
)


def in_process_steps() -> tuple[int, int]:
    """Steps and tokens of one request of 100 frames through vLLM's in-process client at K=4."""
    prepare_environment()
    import torch  # noqa: F401

    import kstep_shim

    kstep_shim.install(frames=4)
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    shape = StageShape(frames=4, shim=True)
    config = OmniEngineArgs(**engine_arguments(shape)).create_engine_config()
    client = InprocClient(config, UniProcExecutor, log_stats=False)
    randomise_weights(client.engine_core)
    spec = RequestSpec("one", condition=12, max_tokens=100, min_tokens=100)
    client.engine_core.add_request(build_request(spec))
    steps = tokens = 0
    while client.engine_core.scheduler.has_unfinished_requests():
        tokens += sum(len(output.new_token_ids) for output in client.get_output().outputs)
        steps += 1
    return steps, tokens


@dataclass
class Faulted:
    """What had come out when the stage failed, and why it failed."""

    requests: dict[str, RequestOutcome]
    error: str


@dataclass(frozen=True)
class Fault:
    """Where a K-frame step fails: in which call of what, counted from the tenth token on."""

    place: str
    frame: int
    message: str


FAULTS = {
    "forward in frame 2": Fault("forward", 2, "planted in a forward"),
    "long: sampling in frame 1": Fault("sample", 1, "planted in sampling"),
    "long: joining the frames": Fault("join", 0, "planted in the merge"),
    "a NaN row in frame 2": Fault("nan", 2, "not finite for requests ['f-b']"),
    "long: forward in frame 0": Fault("forward", 0, "planted in a forward"),
    "long: forward in frame 3": Fault("forward", 3, "planted in a forward"),
    "long: sampling in frame 3": Fault("sample", 3, "planted in sampling"),
    "long: a NaN row in frame 0": Fault("nan", 0, "not finite for requests ['f-b']"),
}


def serve_until_fault(frames: int, fault: str | None) -> Faulted:
    """Serve two requests; once both have 10 tokens the next K-frame step fails."""
    prepare_environment()
    import torch  # noqa: F401

    engine = bring_up(StageShape(frames=frames, shim=frames > 1, chunk_frames=5))
    driver = Driver(engine)
    scenario = Scenario(
        "fault",
        (RequestSpec("f-a", eos_frame=60), RequestSpec("f-b", condition=5, eos_frame=60)),
    )
    if fault is not None:
        _plant(engine, FAULTS[fault])
    try:
        outcome: Outcome = driver.run(scenario)
        return Faulted(outcome.requests, "")
    except Exception:
        return Faulted(driver._outcome.requests, traceback.format_exc())


def _plant(engine: Any, fault: Fault) -> None:
    from kstep_shim.frames.device_tail import DeviceTail

    calls = {"forward": 0}
    runner = model_runner(engine)
    talker = runner.get_model().talker

    def due() -> bool:
        requests = engine.scheduler.requests.values()
        return bool(requests) and all(r.num_output_tokens >= 10 for r in requests)

    def around(owner: Any, name: str, act: Callable[..., Any]) -> None:
        stock = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: act(stock, *args, **kwargs))

    def forward(stock: Any, *args: Any, **kwargs: Any) -> Any:
        hidden = stock(*args, **kwargs)
        calls["forward"] += due()
        if calls["forward"] - 1 != fault.frame or not due():
            return hidden
        if fault.place == "forward":
            raise RuntimeError("planted in a forward")
        hidden = hidden.clone()
        hidden[-4:] = float("nan")
        return hidden

    def frame(stock: Any, tail: Any, number: int, hidden: Any) -> Any:
        if due() and number == fault.frame:
            raise RuntimeError("planted in sampling")
        return stock(tail, number, hidden)

    def finish(stock: Any, tail: Any) -> Any:
        if due():
            raise RuntimeError("planted in the merge")
        return stock(tail)

    if fault.place in ("forward", "nan"):
        around(talker, "forward", forward)
    elif fault.place == "sample":
        around(DeviceTail, "frame", frame)
    else:
        around(DeviceTail, "finish", finish)
