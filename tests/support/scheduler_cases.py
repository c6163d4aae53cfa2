"""Real OmniARScheduler states in which the shim's guards must act, for a process of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from kstep_shim.demo.drive import build_request
from kstep_shim.demo.scenario import RequestSpec, StageShape
from kstep_shim.demo.stage import engine_arguments, prepare_environment

FRAMES = 8
DRAFTS = FRAMES - 1


class Bench:
    """A scheduler without a worker: every step answers *continue* for each request."""

    def __init__(self, **engine_args: Any) -> None:
        import torch
        from vllm.v1.core.kv_cache_utils import FullAttentionSpec
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager
        from vllm_omni.core.sched import omni_ar_scheduler
        from vllm_omni.engine.arg_utils import OmniEngineArgs

        stage = engine_args.pop("model_stage", "tts")
        blocks = engine_args.pop("blocks", 512)
        scheduler = getattr(omni_ar_scheduler, engine_args.pop("scheduler", "OmniARScheduler"))
        arguments = engine_arguments(StageShape(frames=FRAMES, shim=True))
        config = OmniEngineArgs(
            **{**arguments, "async_chunk": False, **engine_args}
        ).create_engine_config()
        if stage != "tts":
            config.model_config = copy.copy(config.model_config)
            config.model_config.model_stage = stage
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(
            block_size=config.cache_config.block_size,
            num_kv_heads=4,
            head_size=16,
            dtype=torch.float32,
        )
        self.scheduler = scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=config.cache_config.block_size,
            log_stats=False,
        )

    def add(self, name: str, condition: int = 3, **options: Any) -> Any:
        self.scheduler.add_request(build_request(RequestSpec(name, condition, **options)))
        return self.scheduler.requests[name]

    def step(self, rows: dict[str, list[int]] | None = None) -> Any:
        """One whole step; `rows` replaces what the runner would have sampled."""
        from vllm.v1.outputs import ModelRunnerOutput

        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        widths = [len(output.scheduled_spec_decode_tokens.get(n, ())) + 1 for n in names]
        sampled = [(rows or {}).get(n, [0] * w) for n, w in zip(names, widths, strict=True)]
        for index, name in enumerate(names):
            request = self.scheduler.requests[name]
            if request.num_computed_tokens < request.num_prompt_tokens:
                sampled[index] = []
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        return output

    def draft(self, counts: dict[str, int]) -> dict[str, int]:
        """Hand out drafts as the runner does; returns how many each request then holds."""
        from vllm.v1.outputs import DraftTokenIds

        self.scheduler.update_draft_token_ids(
            DraftTokenIds(list(counts), [[0] * count for count in counts.values()])
        )
        return {n: len(r.spec_token_ids) for n, r in self.scheduler.requests.items()}

    def seen(self) -> dict[str, Any]:
        """What the coming step schedules."""
        output = self.scheduler.schedule()
        return {
            "widths": dict(output.num_scheduled_tokens),
            "drafts": {k: len(v) for k, v in output.scheduled_spec_decode_tokens.items()},
            "total": output.total_num_scheduled_tokens,
            "computed": {n: r.num_computed_tokens for n, r in self.scheduler.requests.items()},
            "in_flight": {n: r.num_in_flight_tokens for n, r in self.scheduler.requests.items()},
        }


def steady(bench: Bench, *names: str) -> None:
    """Bring requests to their first decode step, drafts in hand."""
    for name in names:
        bench.add(name)
    bench.step()
    bench.draft(dict.fromkeys(names, DRAFTS))


def waiting_request_drops_drafts() -> Any:
    bench = Bench()
    steady(bench, "a")
    bench.add("b")
    return bench.seen()


def lone_decode_keeps_drafts() -> Any:
    bench = Bench()
    steady(bench, "a")
    return bench.seen()


def running_chunk_drops_drafts() -> Any:
    bench = Bench(max_num_batched_tokens=64)
    steady(bench, "a")
    bench.add("b", condition=120)
    bench.step()
    bench.draft({"a": DRAFTS})
    return bench.seen()


def other_stage_is_untouched() -> Any:
    bench = Bench(model_stage="llm")
    steady(bench, "a")
    bench.add("b")
    return bench.seen()


def async_scheduler_keeps_its_own_booking() -> Any:
    bench = Bench(
        model_stage="llm", async_scheduling=True, scheduler="OmniARAsyncScheduler", model_arch=None
    )
    request = bench.add("a")
    bench.scheduler.schedule()
    own = {"_update_after_schedule", "update_draft_token_ids"} & vars(bench.scheduler).keys()
    return {"placeholders": request.num_output_placeholders, "covered": sorted(own)}


def seven_token_chunk_drops_drafts() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    bench.scheduler.requests["b"].spec_token_ids = []
    bench.scheduler.requests["b"].num_computed_tokens -= 4
    bench.scheduler.requests["b"].num_prompt_tokens -= 4
    return bench.seen()


def first_decode_without_drafts() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    bench.scheduler.requests["b"].spec_token_ids = []
    return bench.seen()


def waiting_beyond_capacity_keeps_drafts() -> Any:
    bench = Bench(max_num_seqs=2)
    steady(bench, "a", "b")
    bench.add("c")
    return bench.seen()


def context_edge_goes_single_frame() -> Any:
    bench = Bench(max_model_len=16)
    steady(bench, "a", "b")
    bench.step()
    bench.draft({"a": DRAFTS, "b": DRAFTS})
    return bench.seen()


def budget_goes_single_frame() -> Any:
    bench = Bench(max_num_batched_tokens=16)
    steady(bench, "a", "b", "c")
    return bench.seen()


def scarce_blocks_go_single_frame() -> Any:
    """Two requests one token short of a block's end, and no block left."""
    bench = Bench(blocks=3, max_model_len=256)
    bench.add("a", condition=119)
    bench.add("b", condition=119)
    bench.step()
    bench.draft({"a": DRAFTS, "b": DRAFTS})
    return bench.seen()


def logprobs_go_single_frame() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    bench.scheduler.requests["b"].sampling_params.logprobs = 1
    return bench.seen()


def drafts_without_a_token_to_decode() -> Any:
    bench = Bench()
    bench.add("a")
    bench.add("b")
    bench.step({"b": []})
    bench.draft({"a": DRAFTS, "b": DRAFTS})
    return bench.seen()


def uneven_drafts_are_taken_back() -> Any:
    found = {}
    for pair in ((7, 3), (7, 0), (7, 7), (0, 0)):
        bench = Bench()
        steady(bench, "a", "b")
        found[pair] = bench.draft({"a": pair[0], "b": pair[1]})
    return found


def booking_follows_the_rewrite() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    before = {n: r.num_computed_tokens for n, r in bench.scheduler.requests.items()}
    bench.scheduler.requests["b"].spec_token_ids = [0, 0, 0]
    return {"before": before, **bench.seen()}


def padded_drafts_do_not_count() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    bench.scheduler.requests["b"].spec_token_ids = [-1] * DRAFTS
    return bench.seen()


def empty_row_is_rolled_back() -> Any:
    bench = Bench()
    steady(bench, "a", "b")
    before = bench.scheduler.requests["b"].num_computed_tokens
    bench.step({"b": []})
    after = bench.scheduler.requests["b"].num_computed_tokens
    bench.draft({"a": DRAFTS, "b": DRAFTS})
    widths = [bench.seen()["widths"]]
    return {"before": before, "after": after, "widths": widths}


CASES: tuple[Callable[[], Any], ...] = (
    waiting_request_drops_drafts,
    lone_decode_keeps_drafts,
    running_chunk_drops_drafts,
    other_stage_is_untouched,
    async_scheduler_keeps_its_own_booking,
    seven_token_chunk_drops_drafts,
    first_decode_without_drafts,
    waiting_beyond_capacity_keeps_drafts,
    context_edge_goes_single_frame,
    budget_goes_single_frame,
    scarce_blocks_go_single_frame,
    logprobs_go_single_frame,
    drafts_without_a_token_to_decode,
    uneven_drafts_are_taken_back,
    booking_follows_the_rewrite,
    padded_drafts_do_not_count,
    empty_row_is_rolled_back,
)


def run_all() -> dict[str, Any]:
    """Every case's result by name."""
    prepare_environment()
    import torch  # noqa: F401

    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    return {case.__name__: case() for case in CASES}
