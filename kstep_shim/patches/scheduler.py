"""Scheduler: K positions for every running request of the Talker stage, or one for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.frames import schedule
from kstep_shim.frames.hand_over import book_tokens

_DRAFTS = "_kstep_shim_drafts"


def seal(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> None:
    """Build the scheduler; on an armed Talker stage, make sure that all patches are in place.

    Raises
    ------
    KStepError
        A patch that the engine core needs is missing. K positions are promised by then, so the
        engine must not start.
    """
    from kstep_shim import installer

    wrapped(*args, **kwargs)
    drafts = schedule.draft_count(scheduler.vllm_config)
    setattr(scheduler, _DRAFTS, drafts)
    if drafts:
        stage = scheduler.vllm_config.model_config.stage_id
        installer.current().seal(Side.ENGINE_CORE, "engine core", stage, frames=drafts + 1)


def drop_drafts(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Drop all drafts before a step that cannot be K wide for every request."""
    drafts = getattr(scheduler, _DRAFTS, 0)
    if drafts and scheduler.running:
        reason = schedule.single_frame_step_reason(scheduler, drafts)
        if reason is not None:
            counters().increment(f"drafts_dropped: {reason}")
            schedule.drop_drafts(scheduler.running)
    return wrapped(*args, **kwargs)


def rewrite_before_booking(
    wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Rewrite a step with unequal spans before its tokens are counted as computed."""
    drafts = getattr(scheduler, _DRAFTS, 0)
    if drafts:
        output = args[0] if args else kwargs["scheduler_output"]
        if schedule.make_spans_uniform(output, drafts):
            counters().increment("spans_rewritten")
    return wrapped(*args, **kwargs)


def align_drafts(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Take the drafts of all running requests away when they differ in number."""
    result = wrapped(*args, **kwargs)
    drafts = getattr(scheduler, _DRAFTS, 0)
    if drafts:
        schedule.align_drafts(scheduler, drafts)
    return result


def book_step(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Note what each request had before the step, and roll back rows that came back empty.

    The stock accounting skips an empty row, and the hand-over needs the count from before.
    """
    if getattr(scheduler, _DRAFTS, 0):
        _book(scheduler, *args, **kwargs)
    return wrapped(*args, **kwargs)


def _book(scheduler: Any, scheduler_output: Any, model_runner_output: Any) -> None:
    from kstep_shim._logging import LOGGER

    sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
    for name in scheduler_output.num_scheduled_tokens:
        request = scheduler.requests.get(name)
        if request is not None and not request.is_finished():
            book_tokens(request, len(sampled[index[name]]) if sampled else 0)
    settled = schedule.settle_empty_rows(scheduler, scheduler_output, model_runner_output)
    if settled:
        counters().increment("rows_rolled_back", len(settled))
        LOGGER.error("kstep_shim: no token came back for drafted requests %s", settled)


_OMNI = "vllm_omni.core.sched.omni_ar_scheduler"
_BASE = "vllm.v1.core.sched.scheduler"

PATCH = Patch(
    name="scheduler",
    summary="schedule K positions for every request, or one for each",
    targets=(
        Target(
            distribution="vllm-omni",
            module=_OMNI,
            qualname="OmniARScheduler.__init__",
            parameters=("self",),
            wrapper=seal,
            before_seal=True,
        ),
        Target(
            distribution="vllm-omni",
            module=_OMNI,
            qualname="OmniARScheduler.schedule",
            parameters=("self", "throttle_prefills"),
            wrapper=drop_drafts,
        ),
        Target(
            distribution="vllm",
            module=_BASE,
            qualname="Scheduler._update_after_schedule",
            parameters=("self", "scheduler_output"),
            wrapper=rewrite_before_booking,
        ),
        Target(
            distribution="vllm",
            module=_BASE,
            qualname="Scheduler.update_draft_token_ids",
            parameters=("self", "draft_token_ids"),
            wrapper=align_drafts,
        ),
        Target(
            distribution="vllm-omni",
            module=_OMNI,
            qualname="OmniARScheduler.update_from_output",
            parameters=("self", "scheduler_output", "model_runner_output"),
            wrapper=book_step,
        ),
    ),
    sides=frozenset({Side.ENGINE_CORE}),
    why="The loop replays a uniform batch; vLLM gives each request the drafts that it has.",
    how="Drops drafts before scheduling, and rewrites what is still uneven before it is booked.",
    remove_when="the released scheduler keeps drafted spans uniform.",
)
