"""Which steps run several frames, and which steps must never be run as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstep_shim.frames.contract import supports_multi_frame
from kstep_shim.frames.flavour import Flavour, flavour_of
from kstep_shim.frames.notices import Notices, process_notices
from kstep_shim.frames.options import single_frame_reason
from kstep_shim.frames.spans import is_prefill, request_infos, request_spans


def applies(
    model: Any, model_kwargs_extra: Mapping[str, Any], notices: Notices | None = None
) -> int:
    """Frames that this step should run, or 0 for the ordinary single forward.

    A step qualifies when it is pure decode: every request has the same span wider than one, none
    is reading its prompt, and each one can build its own next embedding, which it can once a
    frame was sampled. A request that finished before its first frame (empty speech) qualifies
    too: it needs no embedding and reports a stop row for every frame.

    Parameters
    ----------
    model : Any
        The Talker as the runner holds it.
    model_kwargs_extra : Mapping[str, Any]
        What the runner adds to the forward call: ``request_token_spans`` (list of int pairs) and
        ``model_intermediate_buffer`` (list of per-request dicts), in batch order.
    notices : Notices, optional
        Records each refusal and logs each distinct one once; ``notices.last_key`` names the
        latest. The process-wide record by default.

    Returns
    -------
    int
        The common span width, at least 2, or 0.

    Raises
    ------
    TypeError
        From the contract check: the model's flag is true but members are missing.

    Examples
    --------
    >>> applies(object(), {"request_token_spans": [(0, 4)], "model_intermediate_buffer": [{}]})
    0
    """
    notices = notices or process_notices
    notices.forget_last()
    if not supports_multi_frame(model):
        return 0
    spans, infos = request_spans(model_kwargs_extra), request_infos(model_kwargs_extra)
    if not spans or len(spans) != len(infos):
        notices.notify(
            "misaligned",
            f"multi-frame decode declined: {len(spans)} spans for {len(infos)} request buffers",
        )
        return 0
    widths = {end - start for start, end in spans}
    frames = spans[0][1] - spans[0][0]
    if max(widths) <= 1:
        return 0
    if len(widths) > 1:
        # A prefill beside decodes is everyday; only uneven decodes are worth a warning.
        if is_multi_token_decode(model, model_kwargs_extra):
            notices.notify("uneven", f"multi-frame decode declined: uneven spans {spans}")
        return 0
    flavour = flavour_of(model)
    for index, info in enumerate(infos):
        refusal = _request_refusal(flavour, info)
        if refusal == "prefill":
            return 0
        if refusal is not None:
            notices.notify(refusal, f"multi-frame decode declined: request {index}: {refusal}")
            return 0
    return frames


def _request_refusal(flavour: Flavour, info: Any) -> str | None:
    """Why this request cannot run several frames now, or ``None``."""
    if not isinstance(info, dict):
        return "request buffer is not a dict"
    if is_prefill(info):
        return "prefill"
    return flavour.refusal(info)


def is_multi_token_decode(model: Any, model_kwargs_extra: Mapping[str, Any]) -> bool:
    """Tell whether a decoding request of the Talker was scheduled for several tokens.

    The single-forward path would sample one frame from the last row of such a span and report one
    stop row where one per position is expected. Other stages may draft for real, so a model
    without the flag is always ``False``.

    Parameters
    ----------
    model : Any
        The model as the runner holds it.
    model_kwargs_extra : Mapping[str, Any]
        As for `applies`.

    Returns
    -------
    bool
    """
    if not supports_multi_frame(model):
        return False
    spans, infos = request_spans(model_kwargs_extra), request_infos(model_kwargs_extra)
    if len(spans) != len(infos):
        return False
    return any(
        end - start > 1 and isinstance(info, dict) and not is_prefill(info)
        for (start, end), info in zip(spans, infos, strict=True)
    )


def drafts_this_step(runner: Any, notices: Notices | None = None) -> int:
    """Frames that the next step should be scheduled for, or 0 to stay generic.

    vLLM V1 can only say "this request advances by more than one token" through speculative
    tokens, so the number comes from the runner's own ``num_spec_tokens``. While a running request
    carries an option that needs the ordinary step (logprobs, for one), the answer is 0.

    Parameters
    ----------
    runner : Any
        Model runner with ``model``, ``num_spec_tokens`` and, for the options, ``input_batch`` and
        ``requests``.
    notices : Notices, optional
        As for `applies`.

    Returns
    -------
    int
        ``num_spec_tokens + 1``, or 0.
    """
    notices = notices or process_notices
    drafts = int(getattr(runner, "num_spec_tokens", 0) or 0)
    if drafts <= 0 or not supports_multi_frame(getattr(runner, "model", None)):
        return 0
    requests = getattr(runner, "requests", None) or {}
    for request_id in getattr(getattr(runner, "input_batch", None), "req_ids", None) or ():
        request = requests.get(request_id)
        reason = single_frame_reason(getattr(request, "sampling_params", None))
        if reason is not None:
            notices.notify(f"option: {reason}", f"one frame per step while a request uses {reason}")
            return 0
    return drafts + 1
