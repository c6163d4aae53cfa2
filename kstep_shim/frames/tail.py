"""What happens after each forward: sampling a frame, and joining the frames at the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

from kstep_shim.frames.limits import RowLimits
from kstep_shim.frames.spans import (
    ELIGIBLE_KEY,
    SPANS_KEY,
    Span,
    request_infos,
    request_spans,
)


@dataclass(frozen=True)
class FrameStep:
    """The step that a frame tail works on; the same object for all of its frames.

    Attributes
    ----------
    model : Any
        The Talker as the runner holds it.
    frames : int
        Frames of the step, K.
    model_kwargs, model_kwargs_extra : Mapping[str, Any]
        The runner's keyword arguments of the forward call.
    narrow : bool
        Whether the one-query graph is replayed: hidden row i then is request i. Otherwise frame k
        of request i is hidden row ``start_i + k``.
    """

    model: Any
    frames: int
    model_kwargs: Mapping[str, Any]
    model_kwargs_extra: Mapping[str, Any]
    narrow: bool

    @cached_property
    def spans(self) -> list[Span]:
        """The step's span ``(start, start + frames)`` of each request."""
        return request_spans(self.model_kwargs_extra)

    @cached_property
    def infos(self) -> list[Any]:
        """The live buffer of each request."""
        return request_infos(self.model_kwargs_extra)

    def slice_at(self, frame: int) -> slice | None:
        """The same rows as one slice, where they are evenly spaced; one copy serves them all."""
        rows = self.rows_at(frame)
        stride = rows[1] - rows[0] if len(rows) > 1 else 1
        if stride > 0 and rows == list(range(rows[0], rows[0] + stride * len(rows), stride)):
            return slice(rows[0], rows[-1] + 1, stride)
        return None

    def rows_at(self, frame: int) -> list[int]:
        """Row of each request in frame `frame`'s hidden states and in its input embeddings."""
        if self.narrow:
            return list(range(len(self.spans)))
        return [start + frame for start, _ in self.spans]


class FrameTail(Protocol):
    """Takes over after each forward of a step.

    A tail belongs to one step at a time: ``begin`` once, ``frame`` for k = 0 .. K-1, ``finish``
    once. After an exception no further method is called.
    """

    def begin(self, step: FrameStep) -> None:
        """Look at the step before its first forward."""
        ...

    def beside(self) -> AbstractContextManager[None]:
        """Where to issue, before `frame`, what only the next forward waits for."""
        ...

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Sample frame `frame` of every request from `hidden`, which the next forward overwrites.

        Returns the next frame's embeddings ``[rows, hidden]`` if the tail has them at hand;
        ``None`` asks the loop to build them with the model's ``preprocess``.
        """
        ...

    def finish(self) -> Any:
        """Join the frames; the result is the step's model output."""
        ...


class StockTail:
    """The model's own ``make_omni_output``, once per frame.

    Rows that have reached their request's limit are reported to the model as not eligible, so
    that it neither draws nor emits for them, and get a stop row here.
    """

    def begin(self, step: FrameStep) -> None:
        """Look at the step before its first forward."""
        self._step = step
        self._limits = RowLimits(step.infos, step.model_kwargs_extra)
        self._outputs: list[Any] = []
        self._stop_rows: list[Tensor] = []

    def beside(self) -> AbstractContextManager[None]:
        """Where everything is issued."""
        return nullcontext()

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Sample frame `frame` with the model's ``make_omni_output``.

        Raises
        ------
        RuntimeError
            The model left no stop rows behind.
        """
        step = self._step
        spent = self._limits.spent(frame)
        extras = {
            **step.model_kwargs_extra,
            SPANS_KEY: [(row, row + 1) for row in step.rows_at(frame)],
        }
        if spent:
            extras[ELIGIBLE_KEY] = self._eligible(spent)
        with self._limits.clamped(frame):
            output = step.model.make_omni_output(hidden, **step.model_kwargs, **extras)
        stop_rows = step.model.take_batch_stop_logits()
        if stop_rows is None:
            raise RuntimeError(f"frame {frame}: the model reported no stop rows")
        if spent:
            stop_rows = stop_rows.clone()
        for row in spent:
            # Scalar fills: a new tensor per row would be one host-to-device copy each.
            stop_rows[row, 0].fill_(float("-inf"))
            stop_rows[row, 1].fill_(0.0)
        self._outputs.append(output)
        self._stop_rows.append(stop_rows)
        return None

    def finish(self) -> Any:
        """Join the frames with the model's ``merge_frame_outputs``."""
        return self._step.model.merge_frame_outputs(self._outputs, self._stop_rows)

    def _eligible(self, spent: list[int]) -> list[bool]:
        given = self._step.model_kwargs_extra.get(ELIGIBLE_KEY)
        eligible = list(given) if given is not None else [True] * len(self._step.infos)
        for row in spent:
            eligible[row] = False
        return eligible
