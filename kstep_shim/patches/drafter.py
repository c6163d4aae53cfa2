"""Drafter: ask for K positions per request with constant drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.patches.armed import armed, flavour


def propose(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Return constant drafts for an armed Talker; let every other stage draft as it does."""
    if not armed(runner):
        return wrapped(*args, **kwargs)
    return _propose(runner, *args, **kwargs)


def propose_on_cuda(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """As `propose`, for the CUDA runner, which hands the step over before the sampled ids."""
    if not armed(runner):
        return wrapped(*args, **kwargs)
    return _propose_on_cuda(runner, *args, **kwargs)


def _propose_on_cuda(
    runner: Any, scheduler_output: Any, sampled_token_ids: Any, *_: Any, **__: Any
) -> list[list[int]]:
    return _propose(runner, sampled_token_ids, None, scheduler_output)


def _propose(
    runner: Any,
    valid_sampled_token_ids: Any,
    sampling_metadata: Any,
    scheduler_output: Any,
    *_: Any,
    **__: Any,
) -> list[list[int]]:
    from kstep_shim.frames.drafts import constant_drafts
    from kstep_shim.frames.gate import drafts_this_step
    from kstep_shim.frames.verify import require_valid

    batch, head = runner.input_batch, flavour(runner)
    drafted = scheduler_output.scheduled_spec_decode_tokens
    counts = [len(drafted.get(name, ())) for name in batch.req_ids]
    on_host = isinstance(valid_sampled_token_ids, list)
    if not on_host or len(valid_sampled_token_ids) != len(counts):
        # Ids that have not come back from the device yet: no draft can be judged by them.
        counters().decline("no sampled ids on the host")
        return [[] for _ in range(batch.num_reqs)]
    rows = list(zip(counts, valid_sampled_token_ids, strict=True))
    require_valid([not count or bool(row) for count, row in rows], batch.req_ids)
    for count, row in rows:
        if len(row) <= count:
            counters().increment("tokens_rolled_back", count + 1 - len(row))
        if count and head.stopped(runner, row[-1]):
            counters().increment(f"stops_at_frame: {len(row)}")
    frames = drafts_this_step(runner)
    if frames <= 1:
        return [[] for _ in range(batch.num_reqs)]
    drafts = constant_drafts(
        valid_sampled_token_ids,
        frames,
        batch.num_reqs,
        scheduled_draft_counts=counts,
        # A request whose row a stop cut short ends there: the verify lets a stop through only
        # where the engine accepts it. Its neighbours need not lose a step for it.
        fold_short_rows=False,
    )
    if drafts and not drafts[0]:
        counters().increment("drafts_folded")
    filled: list[list[int]] = head.drafts(valid_sampled_token_ids, drafts)
    return filled


PATCH = Patch(
    name="drafter",
    summary="draft K - 1 continue tokens for every request, or for none",
    targets=(
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.model_runner_v1",
            qualname="NPUModelRunner.propose_draft_token_ids",
            parameters=(
                "self",
                "valid_sampled_token_ids",
                "sampling_metadata",
                "scheduler_output",
                "spec_decode_metadata",
                "spec_decode_common_attn_metadata",
                "positions",
                "num_scheduled_tokens",
                "hidden_states",
                "aux_hidden_states",
                "sample_hidden_states",
                "target_model_batch_desc",
            ),
            wrapper=propose,
            platform="npu",
        ),
        Target(
            distribution="vllm",
            module="vllm.v1.worker.gpu_model_runner",
            qualname="GPUModelRunner.propose_draft_token_ids",
            parameters=(
                "self",
                "scheduler_output",
                "sampled_token_ids",
                "sampling_metadata",
                "hidden_states",
                "sample_hidden_states",
                "aux_hidden_states",
                "spec_decode_metadata",
                "common_attn_metadata",
                "slot_mappings",
            ),
            wrapper=propose_on_cuda,
            platform="cuda",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="Draft tokens are the only way to schedule K positions per request.",
    how="The drafts are always continue; the frames are generated in order, never verified.",
    remove_when="the scheduler can be asked for K positions directly.",
)
