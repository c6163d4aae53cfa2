"""Field reports on the real scheduler alone: states that a healthy worker cannot bring about."""

from __future__ import annotations

import random
from typing import Any

from kstep_shim.demo.stage import prepare_environment, speculative_config
from support.scheduler_cases import DRAFTS, FRAMES, Bench, steady

NAMES = ("a", "b", "c", "d")


def rounds(bench: Bench, count: int) -> list[dict[str, int]]:
    """That many steps, drafts handed out after each; returns the spans."""
    found = []
    for _ in range(count):
        widths = dict(bench.step().num_scheduled_tokens)
        bench.draft({name: DRAFTS for name in widths if name in bench.scheduler.requests})
        found.append(widths)
    return found


def behind(bench: Bench) -> dict[str, int]:
    """Tokens that each request has and has not computed; 1 when the books are right."""
    requests = bench.scheduler.requests
    return {name: r.num_tokens - r.num_computed_tokens for name, r in requests.items()}


def empty_rows(which: tuple[str, ...]) -> Any:
    bench = Bench()
    steady(bench, *NAMES)
    rounds(bench, 3)
    bench.step({name: [] for name in which})
    bench.draft(dict.fromkeys(NAMES, DRAFTS))
    return {
        "widths": rounds(bench, 3),
        "behind": behind(bench),
        "tokens": {n: r.num_output_tokens for n, r in bench.scheduler.requests.items()},
    }


def late_result_of_a_preempted_request() -> Any:
    """Everything that runs is preempted between a step's scheduling and its result."""
    from vllm.v1.core.sched.output import SchedulerOutput

    bench = Bench()
    steady(bench, "a", "b")
    bench.add("c")
    rounds(bench, 1)
    scheduler = bench.scheduler
    output: SchedulerOutput = scheduler.schedule()
    placeholders = [r.num_output_placeholders for r in scheduler.requests.values()]
    scheduler.reset_prefix_cache(reset_running_requests=True)
    outputs = scheduler.update_from_output(output, result(output))
    ends = {
        o.request_id: (str(o.finish_reason), str(o.stop_reason), o.new_token_ids)
        for batch in outputs.values()
        for o in batch.outputs
    }
    held = sorted(scheduler.requests)
    bench.add("later")
    return {
        "ends": ends,
        "placeholders": placeholders,
        "held": held,
        "next": rounds(bench, 2),
        "behind": behind(bench),
    }


def result(output: Any) -> Any:
    """A runner's result in which every row says *continue* for its whole span."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[0] * output.num_scheduled_tokens[name] for name in names],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def a_prompt_preempted_before_it_spoke() -> Any:
    bench = Bench(max_num_batched_tokens=64)
    bench.add("a", condition=120)
    bench.step()
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    return {"widths": rounds(bench, 3), "behind": behind(bench)}


def a_round_missed_for_lack_of_budget() -> Any:
    bench = Bench(max_num_batched_tokens=4)
    for name in ("a", "b", "c"):
        bench.add(name, condition=2)
    rounds(bench, 6)
    bench.scheduler.max_num_scheduled_tokens = 2
    drafts = []
    for _ in range(4):
        for request in bench.scheduler.running:
            request.spec_token_ids = [-1] * DRAFTS
        output = bench.scheduler.schedule()
        drafts.append(dict(output.scheduled_spec_decode_tokens))
        bench.scheduler.update_from_output(output, result(output))
    bench.scheduler.max_num_scheduled_tokens = 4
    rounds(bench, 2)
    return {"drafts": drafts, "behind": behind(bench)}


def one_id_twice() -> Any:
    """A client leaves and comes back under the same id, before the next step and after it."""
    from vllm.v1.request import RequestStatus

    found = []
    for gap in (0, 1):
        bench = Bench()
        steady(bench, "a", "b")
        bench.scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED)
        rounds(bench, gap)
        bench.add("b", condition=7)
        found.append({"widths": rounds(bench, 3), "behind": behind(bench)})
    return found


def result_of_a_request_that_left() -> Any:
    from vllm.v1.request import RequestStatus

    bench = Bench()
    steady(bench, "a", "b")
    output = bench.scheduler.schedule()
    bench.scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED)
    outputs = bench.scheduler.update_from_output(output, result(output))
    tokens = {
        o.request_id: len(o.new_token_ids) for batch in outputs.values() for o in batch.outputs
    }
    return {"tokens": tokens, "behind": behind(bench), "held": sorted(bench.scheduler.requests)}


def thinker_trace(scheduler: str) -> list[Any]:
    """Spans, drafts and finished ids of a seeded run of stage 0 with drafts of its own."""
    draw = random.Random(5)
    asynchronous = "Async" in scheduler
    bench = Bench(
        model_stage="llm",
        scheduler=scheduler,
        async_scheduling=asynchronous,
        speculative_config=None if asynchronous else speculative_config(FRAMES),
        model_arch=None,
    )
    trace: list[Any] = []
    number = 0
    for step in range(120):
        if draw.random() < 0.3 and len(bench.scheduler.requests) < 6:
            limit = draw.randint(1, 40)
            bench.add(f"t{number}", condition=draw.randint(1, 90), min_tokens=0, max_tokens=limit)
            number += 1
        output = bench.scheduler.schedule()
        if step in (40, 80) and not asynchronous:
            bench.scheduler.reset_prefix_cache(reset_running_requests=True)
        answer = result(output)
        for index, name in enumerate(answer.req_ids):
            request = bench.scheduler.requests[name]
            prompt = request.num_computed_tokens < request.num_prompt_tokens
            drafted = len(output.scheduled_spec_decode_tokens.get(name, ()))
            count = 0 if prompt else 1 + draw.randint(0, drafted)
            answer.sampled_token_ids[index] = [0] * count
        outputs = bench.scheduler.update_from_output(output, answer)
        if not asynchronous:
            running = bench.scheduler.running
            bench.draft({r.request_id: draw.choice((0, 0, 2, DRAFTS)) for r in running})
        trace.append(
            (
                dict(output.num_scheduled_tokens),
                {k: list(v) for k, v in output.scheduled_spec_decode_tokens.items()},
                sorted(output.finished_req_ids),
                sorted(
                    (o.request_id, tuple(o.new_token_ids), str(o.finish_reason))
                    for batch in outputs.values()
                    for o in batch.outputs
                ),
            )
        )
    return trace


def thinker_traces(armed: bool) -> dict[str, list[Any]]:
    """`thinker_trace` for both schedulers, with the shim installed or not."""
    prepare_environment()
    import torch  # noqa: F401

    if armed:
        import kstep_shim

        kstep_shim.install(frames=FRAMES)
    return {name: thinker_trace(name) for name in ("OmniARScheduler", "OmniARAsyncScheduler")}


def run_all() -> dict[str, Any]:
    """Every case's result by name."""
    prepare_environment()
    import torch  # noqa: F401

    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    cases = (
        late_result_of_a_preempted_request,
        a_prompt_preempted_before_it_spoke,
        a_round_missed_for_lack_of_budget,
        one_id_twice,
        result_of_a_request_that_left,
    )
    found = {case.__name__: case() for case in cases}
    found["one_empty_row"] = empty_rows(("b",))
    found["four_empty_rows"] = empty_rows(NAMES)
    return found
