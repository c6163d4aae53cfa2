"""Serve a stress plan, or one request alone, on a fresh stage in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kstep_shim.demo.scenario import RequestSpec, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment
from support.stress_driver import ForgetfulDriver, Key, Spoken, StressDriver, StressResult
from support.stress_plan import Plan


def run_plan(plan: Plan, prepare: Callable[[], None] | None = None) -> StressResult:
    """Serve `plan` on a fresh stage in this process."""
    prepare_environment()
    import torch  # noqa: F401

    if prepare is not None:
        prepare()
    return StressDriver(bring_up(plan.shape()), plan.frames).run_plan(plan)


def resident_memory(plan: Plan) -> dict[int, int]:
    """Bytes of resident memory of a fresh stage that serves `plan`, by requests that had come."""
    prepare_environment()
    import torch  # noqa: F401

    return ForgetfulDriver(bring_up(plan.shape()), plan.frames).run_plan(plan).resident


def run_alone(shape: StageShape, wanted: Mapping[Key, RequestSpec]) -> dict[Key, Spoken]:
    """What K=1 without the shim says for each of `wanted`, one request at a time."""
    prepare_environment()
    import torch  # noqa: F401

    driver = StressDriver(bring_up(shape), 1)
    return {
        key: driver.speak_alone(replace(spec, request_id=f"alone{number}"), key[1])
        for number, (key, spec) in enumerate(wanted.items())
    }
