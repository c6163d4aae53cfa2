"""Talker: give the model, and the wrapper that the runner sees, what the frame loop asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kstep_shim.declaration import Head, Kind, Patch, Side, Target

_MODELS = "vllm_omni.model_executor.models.minicpmo_4_5"


def _talker_supports(talker: Any) -> bool:
    """Whether this Talker belongs to a stage that was configured for several frames."""
    from kstep_shim.frames.schedule import draft_count

    return draft_count(talker.vllm_config) > 0


def _talker_batch_stop_logits(talker: Any) -> Any:
    """Stop rows waiting for ``compute_logits``."""
    return talker._batch_stop_logits


def take_batch_stop_logits(talker: Any) -> Any:
    """Hand over the stop rows, so that the next frame's do not overwrite them."""
    rows, talker._batch_stop_logits = talker._batch_stop_logits, None
    return rows


def set_batch_stop_logits(talker: Any, stop_rows: Any) -> None:
    """Store the rows that ``compute_logits`` returns next."""
    talker._batch_stop_logits = stop_rows


def merge_frame_outputs(talker: Any, outputs: Sequence[Any], stop_rows: Sequence[Any]) -> Any:
    """Join the frames of a step and store their stop rows."""
    from kstep_shim.frames import merge

    return merge.merge_frame_outputs(outputs, stop_rows, talker.set_batch_stop_logits)


def _wrapper_supports(wrapper: Any) -> bool:
    """The Talker's answer; ``False`` on a stage that has none."""
    return bool(getattr(wrapper.talker, "supports_multi_frame_decode", False))


def _wrapper_batch_stop_logits(wrapper: Any) -> Any:
    """The Talker's stop rows; ``None`` on a stage that has none."""
    return getattr(wrapper.talker, "batch_stop_logits", None)


def wrapper_take_batch_stop_logits(wrapper: Any) -> Any:
    """Forwarded to the Talker; ``None`` on a stage that has none."""
    return None if wrapper.talker is None else wrapper.talker.take_batch_stop_logits()


def wrapper_set_batch_stop_logits(wrapper: Any, stop_rows: Any) -> None:
    """Forwarded to the Talker; nothing on a stage that has none."""
    if wrapper.talker is not None:
        wrapper.talker.set_batch_stop_logits(stop_rows)


def wrapper_merge_frame_outputs(wrapper: Any, outputs: Sequence[Any], rows: Sequence[Any]) -> Any:
    """Forwarded to the Talker; the last output on a stage that has none."""
    if wrapper.talker is None:
        return outputs[-1]
    return wrapper.talker.merge_frame_outputs(outputs, rows)


def skip_wide_head(wrapped: Callable[..., Any], talker: Any, args: Any, kwargs: Any) -> Any:
    """Leave the codec head alone where every frame of the step has been drawn already.

    The result has the head's width, which the runner looks at, and no storage of its own.
    """
    if not vars(talker).pop("_kstep_shim_drawn", False):
        return wrapped(*args, **kwargs)
    hidden = args[0] if args else kwargs["hidden_states"]
    return hidden.new_zeros(()).expand(hidden.shape[0], int(talker._num_audio_tokens))


def _added(
    module: str, owner: str, members: dict[str, Any], head: Head | None = None
) -> tuple[Target, ...]:
    return tuple(
        Target(
            distribution="vllm-omni",
            module=f"{_MODELS}.{module}",
            qualname=f"{owner}.{name}",
            parameters=(),
            wrapper=member,
            kind=Kind.ADDED,
            head=head,
        )
        for name, member in members.items()
    )


_TALKER = ("minicpmo_4_5_omni_tts", "MiniCPMO45OmniTTSForConditionalGeneration")
_WRAPPER = ("minicpmo_4_5_omni", "MiniCPMO45OmniForConditionalGeneration")

PATCH = Patch(
    name="talker",
    summary="let the Talker hand over stop rows and merge frames",
    targets=(
        *_added(*_TALKER, {"supports_multi_frame_decode": property(_talker_supports)}),
        *_added(
            *_TALKER,
            {
                "batch_stop_logits": property(_talker_batch_stop_logits),
                "take_batch_stop_logits": take_batch_stop_logits,
                "set_batch_stop_logits": set_batch_stop_logits,
                "merge_frame_outputs": merge_frame_outputs,
            },
            Head.STOP_ROW,
        ),
        *_added(*_WRAPPER, {"supports_multi_frame_decode": property(_wrapper_supports)}),
        *_added(
            *_WRAPPER,
            {
                "batch_stop_logits": property(_wrapper_batch_stop_logits),
                "take_batch_stop_logits": wrapper_take_batch_stop_logits,
                "set_batch_stop_logits": wrapper_set_batch_stop_logits,
                "merge_frame_outputs": wrapper_merge_frame_outputs,
            },
            Head.STOP_ROW,
        ),
        Target(
            distribution="vllm-omni",
            module=f"{_MODELS}.{_TALKER[0]}",
            qualname=f"{_TALKER[1]}.compute_logits",
            parameters=("self", "hidden_states"),
            wrapper=skip_wide_head,
            head=Head.CODEC,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The stop rows of a frame are private to the model and consumed one step at a time.",
    how="Adds five members; the flag among them is true only on a stage with K - 1 drafts.",
    remove_when="the released Talker has these members.",
)
