"""What a Talker has to offer before several of its frames may run in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

#: Members that a model with the flag must have. Spelled out, because a Protocol lists its own
#: members only from Python 3.12 on.
REQUIRED_MEMBERS = (
    "batch_stop_logits",
    "take_batch_stop_logits",
    "set_batch_stop_logits",
    "merge_frame_outputs",
)

#: Members that tell a codec head: the one-shot rows of ``compute_logits`` and ``sample``.
CODEC_HEAD_MEMBERS = ("_force_eos_rows", "_penalty_histories")


@runtime_checkable
class MultiFrameTalker(Protocol):
    """A model whose decode frames can be run one after another inside one engine step."""

    supports_multi_frame_decode: bool

    @property
    def batch_stop_logits(self) -> Tensor | None:
        """Stop rows waiting for ``compute_logits``: ``[rows, 2]``, or ``None``."""
        ...

    def take_batch_stop_logits(self) -> Tensor | None:
        """Hand over the waiting stop rows and leave none behind."""
        ...

    def set_batch_stop_logits(self, stop_rows: Tensor | None) -> None:
        """Store the stop rows that ``compute_logits`` shall return next."""
        ...

    def merge_frame_outputs(self, outputs: Sequence[Any], stop_rows: Sequence[Tensor]) -> Any:
        """Join the outputs of the step's frames into one, and store their stop rows."""
        ...


def is_codec_head(model: Any) -> bool:
    """Whether vLLM draws the codes from this Talker's logits, told by what it has.

    Most signatures of the two kinds are the same; their meaning is not.
    """
    talker = getattr(model, "talker", None) or model
    return all(hasattr(talker, name) for name in CODEC_HEAD_MEMBERS)


def supports_multi_frame(model: Any) -> bool:
    """Tell whether `model` declares multi-frame decode, checking that it can keep the promise.

    Members are looked up with plain ``getattr``, because the runner may hold the model inside a
    graph wrapper that delegates unknown attributes.

    Parameters
    ----------
    model : Any
        The model as the runner holds it; ``None`` is allowed.

    Returns
    -------
    bool
        ``False`` when ``supports_multi_frame_decode`` is absent or false (nothing else is looked
        at then), ``True`` when it is true and every required member is there. A codec head needs
        none.

    Raises
    ------
    TypeError
        When the flag is true and members are missing; the message names all of them.
    """
    if not getattr(model, "supports_multi_frame_decode", False):
        return False
    if is_codec_head(model):
        return True
    missing = [name for name in REQUIRED_MEMBERS if not hasattr(model, name)]
    if missing:
        raise TypeError(
            f"{type(model).__name__} declares supports_multi_frame_decode but lacks "
            f"{', '.join(missing)}"
        )
    return True
