"""Hand-over: send a step's frames to the vocoder stage token by token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Head, Patch, Side, Target
from kstep_shim.frames import hand_over


def send_by_token(wrapped: Callable[..., Any], adapter: Any, args: Any, kwargs: Any) -> None:
    """Enqueue one task per engine token of an armed Talker's request; others as they are."""
    _send(wrapped, *args, **kwargs)


def _send(
    wrapped: Callable[..., Any],
    multimodal_output: Any = None,
    request: Any = None,
    is_segment_finished: bool = False,
    **confirmed: Any,
) -> None:
    booking = hand_over.take_booking(request)
    if booking is None:
        wrapped(multimodal_output, request, is_segment_finished, **confirmed)
        return
    at_token = hand_over.RequestAtToken
    # One token of a K-wide row comes with K hidden rows; a prompt's one token keeps all of its own.
    wide = booking.tokens > 1 or (booking.drafted and booking.tokens == 1)
    if wide and multimodal_output is not None:
        parts = list(hand_over.split_by_token(multimodal_output, booking.tokens))
    else:
        parts = [multimodal_output]
    for token, part in enumerate(parts[:-1], 1):
        computed = booking.computed + token
        then = at_token(request, booking.status, False, computed)
        wrapped(part, then, False, **hand_over.confirmed_at(confirmed, token, computed))
    last = at_token(request, request.status, request.is_finished(), request.num_computed_tokens)
    wrapped(parts[-1], last, is_segment_finished, **hand_over.confirmed_last(confirmed, len(parts)))


def _target(parameters: tuple[str, ...], head: Head) -> Target:
    return Target(
        distribution="vllm-omni",
        module="vllm_omni.distributed.omni_connectors.transfer_adapter.chunk_transfer_adapter",
        qualname="OmniChunkTransferAdapter.save_async",
        parameters=("self", "multimodal_output", "request", "is_segment_finished", *parameters),
        wrapper=send_by_token,
        head=head,
    )


PATCH = Patch(
    name="hand_over",
    summary="send frames to the vocoder stage as K single-frame steps would",
    targets=(
        _target((), Head.STOP_ROW),
        _target(
            (
                "new_token_ids",
                "confirmed_num_computed_tokens",
                "segment_generation",
                "force_request_finished",
            ),
            Head.CODEC,
        ),
    ),
    sides=frozenset({Side.ENGINE_CORE}),
    why="The vocoder's windows depend on how many frames come at once and on a live flag.",
    how="Splits the step's output by token and freezes the request's ending for each.",
    remove_when="the hand-over takes several frames and carries the ending with them.",
)
