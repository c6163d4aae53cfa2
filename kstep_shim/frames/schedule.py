"""Keeping a stage's spans equal: every running request drafts K - 1 tokens, or nobody does.

The loop replays one uniform batch, so one request that cannot be K wide makes the step
single-frame for all. Works on vLLM's scheduler, its requests and its output by their attributes
and imports neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstep_shim.frames.options import single_frame_reason


def draft_count(vllm_config: Any) -> int:
    """Draft tokens per step of an armed Talker stage, else 0.

    Read from the engine configuration: the scheduler object itself does not keep it.
    """
    model_config = getattr(vllm_config, "model_config", None)
    if getattr(model_config, "model_stage", None) != "tts":
        return 0
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is None:
        return 0
    if isinstance(speculative, dict):
        method, count = speculative.get("method"), speculative.get("num_speculative_tokens")
    else:
        method, count = speculative.method, speculative.num_speculative_tokens
    return int(count or 0) if method == "ngram" else 0


def single_frame_step_reason(scheduler: Any, drafts: int) -> str | None:
    """Why the coming step cannot run K frames, or ``None``.

    Asked before vLLM schedules, while the running requests still hold their drafts; the answer
    covers all that can make spans unequal: prompts, arrivals, the token budget, the context's
    end, and options that need every frame on its own.

    Parameters
    ----------
    scheduler : Any
        vLLM scheduler: ``running``, ``waiting``, ``max_model_len``, limits.
    drafts : int
        K - 1.
    """
    running = list(scheduler.running)
    if any(request.num_computed_tokens < request.num_prompt_tokens for request in running):
        return "prefill pending"
    if len(scheduler.waiting) and can_admit(scheduler):
        return "request waiting"
    width = 1 + drafts
    for request in running:
        behind = request.num_tokens - request.num_computed_tokens
        if behind <= 0:
            if request.spec_token_ids:
                return "drafts without a token to decode"
            continue
        if behind > 1:
            return "uneven progress"
        if request.num_computed_tokens + width + 1 > scheduler.max_model_len:
            return "context limit"
        option = single_frame_reason(request.sampling_params)
        if option is not None:
            return f"option: {option}"
    if len(running) * width > scheduler.max_num_scheduled_tokens:
        return "token budget"
    threshold = scheduler.scheduler_config.long_prefill_token_threshold
    if 0 < threshold < width:
        return "long_prefill_token_threshold"
    if not _blocks_suffice(scheduler, running, width):
        return "KV blocks"
    return None


def _blocks_suffice(scheduler: Any, running: list[Any], width: int) -> bool:
    """Whether K positions each fit without taking blocks from anybody.

    A wide span may reach into a block that one frame per step would never ask for, and vLLM would
    preempt a neighbour for it.
    """
    manager, size = scheduler.kv_cache_manager, scheduler.block_size
    wanted = 0
    for request in running:
        held = min((len(ids) for ids in manager.get_block_ids(request.request_id)), default=0)
        wanted += max(0, -(-(request.num_computed_tokens + width) // size) - held)
    return bool(wanted <= manager.block_pool.get_num_free_blocks())


def can_admit(scheduler: Any) -> bool:
    """Whether a waiting request could join the coming step; unknown limits count as yes."""
    limit = getattr(scheduler, "max_num_running_reqs", None)
    if limit is None:
        return True
    held = int(getattr(scheduler, "num_waiting_for_streaming_input", 0) or 0)
    return len(scheduler.running) + held < int(limit)


def drop_drafts(requests: Iterable[Any]) -> None:
    """Take every request's drafts away, so that the step schedules one token each."""
    for request in requests:
        if request.spec_token_ids:
            request.spec_token_ids = []


def make_spans_uniform(output: Any, drafts: int) -> bool:
    """Rewrite a scheduled step whose spans are unequal to one token per drafted request.

    Must run before the scheduler books the step. The spans are never trimmed to a common narrower
    width: no graph of that width exists. The draft dict ends up empty, not full of empty lists,
    because its mere content decides whether the step is verified as a drafted one. Drafts of -1
    are padding for a request that has not produced anything; they never count as drafts.

    Parameters
    ----------
    output : SchedulerOutput
        ``num_scheduled_tokens``, ``scheduled_spec_decode_tokens`` (dicts by request id) and
        ``total_num_scheduled_tokens`` are rewritten in place.
    drafts : int
        K - 1.

    Returns
    -------
    bool
        Whether anything was rewritten. Calling again changes nothing.
    """
    widths: dict[str, int] = output.num_scheduled_tokens
    drafted: dict[str, list[int]] = output.scheduled_spec_decode_tokens
    if not drafted:
        return False
    uniform = drafted.keys() == widths.keys() and all(
        len(tokens) == drafts and widths[name] == drafts + 1 and min(tokens, default=0) >= 0
        for name, tokens in drafted.items()
    )
    if uniform:
        return False
    for name, tokens in drafted.items():
        widths[name] -= len(tokens)
    drafted.clear()
    output.total_num_scheduled_tokens = sum(widths.values())
    return True


def align_drafts(scheduler: Any, drafts: int) -> None:
    """After drafts were handed out: all running requests hold K - 1 of them, or none does.

    Requests that are not running (a duplex session waiting for its next unit, say) never keep
    drafts: theirs would widen the next prompt.
    """
    running = list(scheduler.running)
    waiting = [r for r in scheduler.requests.values() if r.spec_token_ids and r not in running]
    drop_drafts(waiting)
    if any(len(request.spec_token_ids) != drafts for request in running):
        drop_drafts(running)


def settle_empty_rows(scheduler: Any, scheduler_output: Any, runner_output: Any) -> list[str]:
    """Roll back requests that were scheduled with drafts and came back with no token at all.

    The stock scheduler corrects its count from the number of accepted tokens and skips the
    correction when there is none, so such a request would look as if it had computed tokens that
    do not exist, and would never be scheduled again.

    A row still reading its prompt keeps its prompt tokens; any other row loses its whole span.

    Returns
    -------
    list of str
        The request ids that were rolled back.
    """
    settled: list[str] = []
    sampled, index = runner_output.sampled_token_ids, runner_output.req_id_to_index
    if not sampled:
        return settled
    for name, tokens in scheduler_output.scheduled_spec_decode_tokens.items():
        request = scheduler.requests.get(name)
        if not tokens or request is None or request.is_finished() or sampled[index[name]]:
            continue
        width = scheduler_output.num_scheduled_tokens[name]
        before = request.num_computed_tokens - width
        lost = len(tokens) if before < request.num_prompt_tokens else width
        request.num_computed_tokens -= lost
        if request.num_output_placeholders > 0:
            request.num_output_placeholders = max(0, request.num_output_placeholders - lost)
        settled.append(name)
    return settled
