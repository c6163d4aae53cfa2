"""Scheduler: K positions for every running request of the Talker stage, or one for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Head, Kind, Patch, Side, Target
from kstep_shim.frames import options, preemption, schedule
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
        _arm(scheduler, drafts)
        _warn_of_scarce_blocks(scheduler)


def _warn_of_scarce_blocks(scheduler: Any) -> None:
    from kstep_shim._logging import LOGGER

    shortage = preemption.cache_shortage(
        scheduler.kv_cache_config.num_blocks,
        scheduler.block_size,
        scheduler.max_num_running_reqs,
        scheduler.max_model_len,
    )
    if shortage is not None:
        LOGGER.warning("kstep_shim: %s", shortage)


def schedule_evenly(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Drop all drafts before a step that cannot be K wide for every request.

    Requests that were preempted while they spoke end here, before they can be scheduled again.
    """
    drafts = getattr(scheduler, _DRAFTS, 0)
    if not drafts:
        return wrapped(*args, **kwargs)
    _end_preempted(scheduler)
    if scheduler.running:
        reason = schedule.single_frame_step_reason(scheduler, drafts)
        if reason is not None:
            counters().increment(f"drafts_dropped: {reason}")
            schedule.drop_drafts(scheduler.running)
    output = wrapped(*args, **kwargs)
    _end_preempted(scheduler)
    return output


def _end_preempted(scheduler: Any) -> None:
    from vllm.v1.request import RequestStatus

    from kstep_shim._logging import LOGGER

    for request in preemption.end_preempted(scheduler, RequestStatus.FINISHED_ERROR):
        counters().increment("requests_preempted")
        LOGGER.error("kstep_shim: request %s ends: %s", request.request_id, request.stop_reason)


def _arm(scheduler: Any, drafts: int) -> None:
    """Cover four methods that this scheduler inherits, on the object itself.

    On the class that defines them they would sit below vllm-ascend's own wrappers; on
    OmniARScheduler they would hide the overrides of the asynchronous scheduler, which comes after
    it in the method resolution order of stage 0's class.
    """
    book, hand_out = scheduler._update_after_schedule, scheduler.update_draft_token_ids
    preempt, add = scheduler._preempt_request, scheduler.add_request

    def rewrite_before_booking(scheduler_output: Any) -> Any:
        if schedule.make_spans_uniform(scheduler_output, drafts):
            counters().increment("spans_rewritten")
        return book(scheduler_output)

    def align_drafts(draft_token_ids: Any) -> Any:
        result = hand_out(draft_token_ids)
        schedule.align_drafts(scheduler, drafts)
        return result

    def note_preemption(request: Any, *args: Any, **kwargs: Any) -> Any:
        result = preempt(request, *args, **kwargs)
        preemption.note_preemption(scheduler, request)
        return result

    def add_request(request: Any) -> Any:
        _ignore_vocabulary_options(request)
        return add(request)

    scheduler.add_request = add_request
    scheduler._preempt_request = note_preemption
    scheduler._update_after_schedule = rewrite_before_booking
    scheduler.update_draft_token_ids = align_drafts


def _ignore_vocabulary_options(request: Any) -> None:
    from kstep_shim._logging import LOGGER
    from kstep_shim.catalog import installed_head

    codec_head = installed_head() is Head.CODEC
    kept, ignored = options.without_vocabulary_options(request.sampling_params, codec_head)
    if ignored:
        request.sampling_params = kept
        LOGGER.warning("kstep_shim: request %s: %s ignored", request.request_id, ignored)


def book_step(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Note what each request had before the step, and roll back rows that came back empty.

    The stock accounting skips an empty row, and the hand-over needs the count from before.
    """
    if not getattr(scheduler, _DRAFTS, 0):
        return wrapped(*args, **kwargs)
    from vllm.v1.engine import EngineCoreOutputs
    from vllm_omni.engine import OmniEngineCoreOutput

    # The result of a request that was preempted since is dropped with it.
    _end_preempted(scheduler)
    _book(scheduler, *args, **kwargs)
    outputs = wrapped(*args, **kwargs)
    preemption.report_preempted(scheduler, outputs, OmniEngineCoreOutput, EngineCoreOutputs)
    return outputs


def _book(scheduler: Any, scheduler_output: Any, model_runner_output: Any) -> None:
    from kstep_shim._logging import LOGGER

    sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
    drafts = scheduler_output.scheduled_spec_decode_tokens
    for name, width in scheduler_output.num_scheduled_tokens.items():
        request = scheduler.requests.get(name)
        if request is not None and not request.is_finished():
            ids = sampled[index[name]] if sampled else []
            book_tokens(request, width, ids, drafted=name in drafts)
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
            wrapper=schedule_evenly,
        ),
        Target(
            distribution="vllm",
            module=_BASE,
            qualname="Scheduler._update_after_schedule",
            parameters=("self", "scheduler_output"),
            kind=Kind.RELIED_ON,
        ),
        Target(
            distribution="vllm",
            module=_BASE,
            qualname="Scheduler.update_draft_token_ids",
            parameters=("self", "draft_token_ids"),
            kind=Kind.RELIED_ON,
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
