"""A request's own output limit, when it falls inside a step of several frames.

With one frame per step the engine counts tokens and ends a request by length right after its last
frame, which is delivered. With K frames the engine counts only after the whole step, so the loop
has to know how many frames are left, and must stop *drawing* there: a draw spent on a frame that
is thrown away would shift the generator, which in duplex outlives the request's turn.

Two mechanisms, both limited to K-frame steps:

- Rows at their limit are *spent*: the frame tail reports them as not eligible for sampling, the
  model returns early for them, and they get a stop row. This makes the frames and the draws exact.
- The codec's ceiling is lowered to ``step + left + 1`` frames for the duration of each sampling
  call, as a backstop for a model that ignores eligibility: it may draw one frame too many there,
  and never emits it. One above the limit, because the codec swallows the frame that reaches its
  ceiling where the engine delivers the one that reaches its limit. The ceiling is put back after
  the call, so a later single-frame step finds the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kstep_shim.frames.spans import REMAINING_KEY
from kstep_shim.frames.tokens import STOP_TOKEN_ID


def remaining_outputs(input_batch: Any, requests: Mapping[str, Any]) -> list[int | None]:
    """Tokens that each request may still produce, before this step. Ask on every step.

    vLLM's engine fixes a request's ``max_tokens`` when the request arrives. A later segment of a
    streaming session brings new sampling parameters to the worker, but not a new limit to the
    engine, so the first value seen is kept with the request's state.

    Parameters
    ----------
    input_batch : Any
        vLLM's input batch; only ``req_ids`` is read.
    requests : Mapping[str, Any]
        The runner's request states by id (``sampling_params``, ``output_token_ids``).

    Returns
    -------
    list of int or None
        In batch order: ``max_tokens`` minus the tokens produced; ``None`` without a limit.
    """
    remaining: list[int | None] = []
    for request_id in input_batch.req_ids:
        request = requests.get(request_id)
        limit = None if request is None else _engine_limit(request)
        remaining.append(None if limit is None else limit - _produced(request))
    return remaining


def _engine_limit(request: Any) -> int | None:
    if not hasattr(request, "kstep_max_tokens"):
        limit = getattr(getattr(request, "sampling_params", None), "max_tokens", None)
        request.kstep_max_tokens = None if limit is None else int(limit)
    kept: int | None = request.kstep_max_tokens
    return kept


def _produced(request: Any) -> int:
    return len(getattr(request, "output_token_ids", None) or ())


def output_counts(input_batch: Any, requests: Mapping[str, Any]) -> list[int]:
    """Tokens that each request has produced before this step, in batch order."""
    return [_produced(requests.get(request_id)) for request_id in input_batch.req_ids]


def minimum_outputs(input_batch: Any, requests: Mapping[str, Any]) -> list[int]:
    """Tokens below which each request may not stop, in batch order; 0 without a minimum.

    vLLM masks the stop ids of a request and nothing else, so a request that does not stop at the
    stop row's id has no minimum here either.
    """
    minimums = []
    for request_id in input_batch.req_ids:
        params = getattr(requests.get(request_id), "sampling_params", None)
        stops = getattr(params, "all_stop_token_ids", None)
        masked = stops is None or STOP_TOKEN_ID in stops
        minimums.append(int(getattr(params, "min_tokens", 0) or 0) if masked else 0)
    return minimums


def clamp_codec_limit(state: dict[str, Any], remaining: int | None) -> None:
    """Lower the codec's ceiling to one frame above the request's limit, never raise it.

    Parameters
    ----------
    state : dict
        The request's codec state; ``step`` counts frames drawn, ``max_tokens`` is the ceiling in
        frames.
    remaining : int or None
        Frames that the request may still produce; ``None`` leaves the state alone.
    """
    if remaining is None or "max_tokens" not in state:
        return
    state["max_tokens"] = min(int(state["max_tokens"]), int(state.get("step", 0)) + remaining + 1)


class RowLimits:
    """The limits of one step's rows.

    Parameters
    ----------
    infos : sequence
        Per-request buffers, in batch order.
    model_kwargs_extra : Mapping[str, Any]
        ``request_max_tokens_remaining`` in it is `remaining_outputs` before the step; without it
        no row has a limit.

    Raises
    ------
    RuntimeError
        There are not as many limits as requests.
    """

    def __init__(self, infos: Sequence[Any], model_kwargs_extra: Mapping[str, Any]) -> None:
        remaining = model_kwargs_extra.get(REMAINING_KEY)
        if remaining is None:
            remaining = [None] * len(infos)
        if len(remaining) != len(infos):
            raise RuntimeError(f"{len(remaining)} output limits for {len(infos)} requests")
        self._infos = infos
        # The first frame is one that the engine has scheduled without the shim too.
        self._left = [None if left is None else max(1, int(left)) for left in remaining]

    def left(self, frames: int) -> list[int]:
        """Frames of a step of `frames` that each row may still draw."""
        return [frames if left is None else min(frames, left) for left in self._left]

    def spent(self, frame: int) -> list[int]:
        """Rows whose request has had its last frame before frame `frame` of this step."""
        return [row for row, left in enumerate(self._left) if left is not None and frame >= left]

    @contextmanager
    def clamped(self, frame: int) -> Iterator[None]:
        """Lower the codec ceilings around one frame's sampling call, and put them back."""
        ceilings: list[tuple[dict[str, Any], Any]] = []
        try:
            for info, left in zip(self._infos, self._left, strict=True):
                state = info.get("audio_state") if isinstance(info, dict) else None
                if left is None or not isinstance(state, dict) or "max_tokens" not in state:
                    continue
                ceilings.append((state, state["max_tokens"]))
                clamp_codec_limit(state, max(0, left - frame))
            yield
        finally:
            for state, ceiling in ceilings:
                state["max_tokens"] = ceiling
