"""The end of a request whose KV blocks were taken away while it was speaking.

The Talker's input is what it said last, and only the worker knows that: a preempted request that
is scheduled again cannot be rebuilt from its prompt, and the stock stack stops the whole stage on
it. So it ends, alone, with an error that names the cause. A request that has not spoken yet
starts again, as it does with one frame per step.
"""

from __future__ import annotations

from typing import Any

#: What the client reads.
PREEMPTED = (
    "preempted: the KV cache ran out of blocks while this request was speaking; lower max_num_seqs "
    "or max_model_len of the Talker stage, or give it more memory"
)
_PENDING, _ENDED = "_kstep_shim_preempted", "_kstep_shim_ended"


def note_preemption(scheduler: Any, request: Any) -> None:
    """Remember a request that was preempted in the middle of its speech."""
    if request.num_output_tokens > 0:
        vars(scheduler).setdefault(_PENDING, []).append(request)


def end_preempted(scheduler: Any, error_status: Any) -> list[Any]:
    """Finish the remembered requests; must run before any of them is scheduled again.

    Parameters
    ----------
    scheduler : Any
        vLLM scheduler with ``finish_requests``, ``requests`` and, perhaps, a
        ``chunk_transfer_adapter``.
    error_status : Any
        vLLM's ``RequestStatus.FINISHED_ERROR``.

    Returns
    -------
    list
        The requests that ended now.
    """
    pending = vars(scheduler).pop(_PENDING, None)
    if not pending:
        return []
    ended = [
        request for request in pending if scheduler.requests.get(request.request_id) is request
    ]
    scheduler.finish_requests([request.request_id for request in ended], error_status)
    adapter = getattr(scheduler, "chunk_transfer_adapter", None)
    for request in ended:
        request.stop_reason, request.resumable = PREEMPTED, False
        if adapter is not None:
            # The adapter keeps back what a preempted request sends; this is only the end mark.
            adapter.requests_num_chunks_sent.pop(request.external_req_id, None)
            adapter.save_async(None, request, False)
    vars(scheduler).setdefault(_ENDED, []).extend(ended)
    return ended


def report_preempted(scheduler: Any, outputs: Any, make_output: Any, make_batch: Any) -> None:
    """Put the endings into the step's outputs, in place of the abort that vLLM reports.

    Parameters
    ----------
    scheduler : Any
        As for `end_preempted`.
    outputs : dict
        The step's ``EngineCoreOutputs`` by client, changed in place.
    make_output, make_batch : callable
        The classes of one output and of one client's outputs.
    """
    for request in vars(scheduler).pop(_ENDED, ()):
        batch = outputs.get(request.client_index)
        if batch is None:
            batch = outputs[request.client_index] = make_batch()
        batch.outputs[:] = [o for o in batch.outputs if o.request_id != request.request_id]
        batch.outputs.append(
            make_output(
                request_id=request.request_id,
                new_token_ids=[],
                finish_reason=request.get_finished_reason(),
                stop_reason=request.stop_reason,
            )
        )


def cache_shortage(num_blocks: int, block_size: int, rows: int, max_model_len: int) -> str | None:
    """Say that a full batch of full-length requests does not fit into the KV cache.

    Examples
    --------
    >>> cache_shortage(num_blocks=33, block_size=128, rows=4, max_model_len=1024) is None
    True
    """
    # Block 0 is vLLM's null block.
    needed, usable = rows * -(-max_model_len // block_size), num_blocks - 1
    if usable >= needed:
        return None
    return (
        f"the KV cache has {usable} blocks and max_num_seqs={rows} requests of "
        f"max_model_len={max_model_len} need {needed}: under load a request can be preempted, and "
        "a Talker request that is preempted while it speaks ends with an error"
    )
