"""What is done to a stage before it comes up, to try its graphs."""

from __future__ import annotations

import os
from typing import Any

from support.no_host import no_host_in_the_loop


def narrow_on() -> None:
    """Capture one-query graphs although this part is listed as one on which that faults."""
    os.environ["KSTEP_SHIM_NARROW"] = "on"


def narrow_without_host() -> None:
    narrow_on()
    no_host_in_the_loop()


def narrow_on_but_its_capture_fails() -> None:
    narrow_on()
    from kstep_shim.frames import one_query

    def failing(graphs: Any, capture_model: Any) -> int:
        with graphs.dispatching():
            raise RuntimeError("insufficient stream resources")

    one_query.OneQueryGraphs.capture = failing


def poisoned_padding() -> None:
    """Before each narrow step leave live slots and lengths in the padding of its graph."""
    narrow_on()
    from kstep_shim.frames import narrow as beginning
    from kstep_shim.frames.narrow_step import NarrowStep

    prepare, select = beginning._prepare, NarrowStep.select

    def poisoned(*args: Any) -> NarrowStep:
        # The step's own slots have been copied by now.
        step = prepare(*args)
        step.graph.slot_mapping[step.rows :].fill_(int(step.step_slots[0, 0]))
        step.graph.seq_lens[step.rows :].fill_(3)
        return step

    def checked(step: NarrowStep, frame: int) -> None:
        select(step, frame)
        assert step.slot_mapping[step.rows :].tolist() == [-1] * _padding(step)
        assert step.seq_lens[step.rows :].tolist() == [0] * _padding(step)

    beginning._prepare = poisoned
    NarrowStep.select = checked


def _padding(narrow: Any) -> int:
    return int(narrow.slot_mapping.shape[0] - narrow.rows)


def wide_padding_is_checked() -> None:
    """Fail on a replay of a K-query graph with live slots behind the step's rows."""
    from vllm.forward_context import get_forward_context

    from kstep_shim.frames import loop
    from kstep_shim.frames.narrow import _attention_metadata

    run = loop.run

    def checked_run(**arguments: Any) -> Any:
        forward = arguments["run_model"]
        live = len(arguments["model_kwargs_extra"]["request_token_spans"]) * arguments["frames"]

        def checked_forward() -> Any:
            slots = _attention_metadata(get_forward_context()).slot_mapping[live:]
            assert bool((slots == -1).all()), slots
            return forward()

        return run(**{**arguments, "run_model": checked_forward})

    loop.run = checked_run


def new_weights_half_way() -> None:
    """Load other weights into the same memory after 13 tokens, as after a sleep of level 2."""
    import torch
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner

    narrow_on()
    execute = NPUARModelRunner.execute_model
    changed: list[bool] = []

    def executing(runner: Any, *args: Any, **kwargs: Any) -> Any:
        produced = sum(len(request.output_token_ids) for request in runner.requests.values())
        if produced == 13 and not changed:
            changed.append(True)
            with torch.no_grad():
                for parameter in runner.get_model().talker.parameters():
                    parameter.mul_(1.25)
        return execute(runner, *args, **kwargs)

    NPUARModelRunner.execute_model = executing
