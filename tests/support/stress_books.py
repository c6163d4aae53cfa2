"""What must hold in the real scheduler and runner after every single step."""

from __future__ import annotations

from typing import Any


class BookError(AssertionError):
    """A step left the books wrong."""


def check_schedule(
    output: Any, requests: dict[str, Any], frames: int, codec_head: bool = False
) -> None:
    """Spans of a scheduled step: none below one, all K or all one, and no filler among them."""
    widths = output.num_scheduled_tokens
    drafted = output.scheduled_spec_decode_tokens
    _require(output.total_num_scheduled_tokens == sum(widths.values()), "total", output)
    _require(all(width >= 1 for width in widths.values()), "span below one", widths)
    if drafted:
        _require(drafted.keys() == widths.keys(), "drafts of some requests only", drafted)
        _require(set(widths.values()) == {frames}, "drafted spans that are not K", widths)
        for name, tokens in drafted.items():
            draft = requests[name].output_token_ids[-1] if codec_head else 0
            _require(tokens == [draft] * (frames - 1), f"drafts other than {draft}", drafted)
        return
    for name, width in widths.items():
        request = requests[name]
        before = request.num_computed_tokens - width
        decoding = before >= request.num_prompt_tokens and request.num_preemptions == 0
        _require(not decoding or width == 1, "a draftless decode wider than one", widths)


def check_books(scheduler: Any, widths: dict[str, int], sampled: dict[str, int]) -> int:
    """Counters after a step; returns the positions that were scheduled and not delivered."""
    rolled_back = 0
    for name, request in scheduler.requests.items():
        _require(request.num_in_flight_tokens == 0, "tokens left in flight", name)
        _require(request.num_output_placeholders == 0, "placeholders left", name)
        if request.num_output_tokens == 0:
            continue
        behind = request.num_tokens - request.num_computed_tokens
        _require(behind == 1 or request.num_preemptions > 0, f"{behind} tokens behind", name)
        if name in widths and name in sampled:
            rolled_back += widths[name] - sampled[name]
    for request in scheduler.running:
        _require(request.request_id in scheduler.requests, "a freed request runs", request)
        _require(not request.is_finished(), "a finished request runs", request)
    return rolled_back


def check_inputs(input_ids: Any) -> None:
    """No filler id reaches the model."""
    if input_ids is not None and input_ids.numel():
        _require(int(input_ids.min()) >= 0, "a negative id in a model input", input_ids.tolist())


def _require(holds: bool, what: str, seen: object) -> None:
    if not holds:
        raise BookError(f"{what}: {seen}")
