"""parse_output: a head that reports no vocabulary still has its two stop-row ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Head, Kind, Patch, Side, Target


def parse(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    """Read a vocabulary size of 0 as the stop row's width, and count rows left with nothing.

    The method is static and cannot see the stage; a size of 0 is what only the Talker reports.
    """
    from kstep_shim.frames.tokens import STOP_ROW_WIDTH

    return _parse(wrapped, STOP_ROW_WIDTH, *args, **kwargs)


def _parse(
    wrapped: Callable[..., Any],
    width: int,
    output_token_ids: Any,
    vocab_size: int,
    discard_req_indices: Any = (),
    logprobs_tensors: Any = None,
) -> Any:
    talker = vocab_size in (0, width)
    rows, logprobs = wrapped(
        output_token_ids, vocab_size or width, discard_req_indices, logprobs_tensors
    )
    if talker:
        discarded = {int(index) for index in discard_req_indices}
        empty = sum(1 for index, row in enumerate(rows) if not row and index not in discarded)
        if empty:
            counters().increment("rows_without_token", empty)
    return rows, logprobs


PATCH = Patch(
    name="parse_output",
    summary="keep accepted ids of a head that reports vocabulary size 0",
    targets=(
        Target(
            distribution="vllm",
            module="vllm.v1.sample.rejection_sampler",
            qualname="RejectionSampler.parse_output",
            parameters=(
                "output_token_ids",
                "vocab_size",
                "discard_req_indices",
                "logprobs_tensors",
            ),
            wrapper=parse,
            head=Head.STOP_ROW,
            kind=Kind.STATICMETHOD,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="With size 0 every accepted id is dropped and the request is never scheduled again.",
    how="Passes the stop row's width on in place of 0.",
    remove_when="the Talker's configuration reports the width of its head.",
)
