"""Handing a step's frames to the vocoder stage as K single-frame steps would have.

The stage-2 processor decides by the request's live state when to flush, on another thread. Given K
frames at once after a finish, it would cut other windows than with one frame per step, or lose the
frames behind the first flush. So every engine token becomes one hand-over, each with the request
as it was at that token: unfinished, but for the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_BOOKED = "_kstep_shim_booked"
_CODES = "codes.audio"
_HIDDEN = "hidden"
_FINISHED = "meta.finished"


class RequestAtToken:
    """A request as it was at one token: its ending, and how far it had come.

    Everything else is the live request's.
    """

    def __init__(self, request: Any, status: Any, finished: bool, computed: int) -> None:
        self._request = request
        self._finished = finished
        self.status = status
        # The adapter compares it with what was sent under the same name before.
        self.num_computed_tokens = computed

    def is_finished(self) -> bool:
        """Whether the request had ended at this token."""
        return self._finished

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_request":
            # A copy asks before it has anything.
            raise AttributeError(name)
        return getattr(self._request, name)


@dataclass(frozen=True)
class Booking:
    """What a request had before a step, and the tokens that the engine accepted in it."""

    status: Any
    computed: int
    tokens: int
    drafted: bool


def book_tokens(request: Any, width: int, sampled: list[int], *, drafted: bool) -> None:
    """Note, before the engine counts a step, what `request` had, and cut ids behind its limit.

    By the time of the hand-over the live counts may be those of the session's next unit.
    """
    cut_behind_limit(request, sampled)
    computed = request.num_computed_tokens - width
    booked = (request.status, computed, request.num_output_tokens, len(sampled), drafted)
    setattr(request, _BOOKED, booked)


def cut_behind_limit(request: Any, sampled: list[int]) -> None:
    """Drop the ids that the engine would drop too, but only after it has counted them.

    A session that goes on would keep a token too many.
    """
    del sampled[max(1, request.max_tokens - request.num_output_tokens) :]


def take_booking(request: Any) -> Booking | None:
    """What `book_tokens` noted, with the tokens accepted since; ``None`` if it did not."""
    booking = vars(request).pop(_BOOKED, None)
    if booking is None:
        return None
    status, computed, before, sampled, drafted = booking
    return Booking(status, computed, accepted_tokens(request, before, sampled), drafted)


def accepted_tokens(request: Any, before: int, sampled: int) -> int:
    """How many of a step's `sampled` ids the engine took, of a request that had `before`.

    A segment's end clears the request's tokens before they can be counted; there all ids of the
    step were taken, which end with the first stop or at the limit.
    """
    accepted: int = request.num_output_tokens - before
    return sampled if accepted < 0 or (accepted == 0 and sampled) else accepted


def split_by_token(payload: Mapping[str, Any], tokens: int) -> Iterator[dict[str, Any]]:
    """One payload per accepted token: its code or none, its hidden row, its finished flag.

    Parameters
    ----------
    payload : Mapping[str, Any]
        The step's flattened output of one request: ``codes.audio`` ``[n, 1]``, ``hidden``
        ``[K, width]``, ``meta.finished`` 0-d; other keys are repeated.
    tokens : int
        Accepted tokens, at least 1. Codes come first; the codec's end has none.
    """
    codes, hidden = payload.get(_CODES), payload.get(_HIDDEN)
    count = 0 if codes is None else int(codes.shape[0])
    last_code = min(count, tokens - 1)
    for token in range(tokens):
        part = dict(payload)
        if codes is not None:
            part[_CODES] = codes[token : token + 1]
        if hidden is not None and hidden.shape[0] >= tokens:
            part[_HIDDEN] = hidden[token : token + 1]
        if token != last_code and _FINISHED in part:
            part[_FINISHED] = part[_FINISHED].new_zeros(())
        yield part


def confirmed_at(confirmed: Mapping[str, Any], token: int, computed: int) -> dict[str, Any]:
    """What the scheduler confirms of a step, where it says so, as it was at one token.

    Empty where the release has no such arguments.
    """
    if not confirmed:
        return {}
    ids = list(confirmed.get("new_token_ids") or ())
    at_token = {
        "new_token_ids": ids[token - 1 : token],
        "confirmed_num_computed_tokens": computed,
    }
    if "segment_generation" in confirmed:
        # The live request may be at the next segment already.
        at_token["segment_generation"] = confirmed["segment_generation"]
    return at_token


def confirmed_last(confirmed: Mapping[str, Any], parts: int) -> dict[str, Any]:
    """The same for the last token of a step that was sent in so many parts."""
    if not confirmed or parts == 1:
        return dict(confirmed)
    ids = list(confirmed.get("new_token_ids") or ())
    return {**confirmed, "new_token_ids": ids[parts - 1 :]}
