"""The frames of a codec-head step, each with a look at the ids that were drawn before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from kstep_shim.frames.codec_head_row import CodecHeadRow
from kstep_shim.frames.spans import INFOS_KEY, SPANS_KEY
from kstep_shim.frames.tail import FrameStep


class CodecHeadFrames(Protocol):
    """How the frames of one step are drawn."""

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Draw a frame of every row that goes on; the next one's embeddings ``[n, width]``."""
        ...

    def outputs(self) -> list[Any]:
        """The model's output of each frame; the rows know all their ids by then."""
        ...


def say(step: FrameStep, frame: int, hidden: Tensor, infos: list[Any]) -> Any:
    """The model's own output of one frame; it skips rows whose `infos` entry is ``None``."""
    spans = [(row, row + 1) for row in step.rows_at(frame)]
    extras = {**step.model_kwargs_extra, SPANS_KEY: spans, INFOS_KEY: infos}
    return step.model.make_omni_output(hidden, **step.model_kwargs, **extras)


def draw(runner: Any, step: FrameStep, frame: int, hidden: Tensor) -> Tensor:
    """Ids ``[n]`` that the runner's own sampler draws from a frame's hidden rows."""
    rows = step.slice_at(frame)
    chosen = hidden[step.rows_at(frame)] if rows is None else hidden[rows].contiguous()
    logits = step.model.compute_logits(chosen)
    sampled: Tensor = runner._sample(logits, None).sampled_token_ids
    return sampled.flatten()


def look_again(runner: Any) -> None:
    """Let vLLM's processors see what was counted since, as they do between two steps."""
    for processor in runner.input_batch.sampling_metadata.logitsprocs.all:
        processor.update_state(None)


class SeenFrames:
    """Implements `CodecHeadFrames` with a host read per frame; right for every request.

    A frame goes the way of a step of one frame. A row whose request has ended is not shown to the
    model again, and draws from a generator that nobody owns.
    """

    def __init__(self, runner: Any, step: FrameStep, rows: list[CodecHeadRow]) -> None:
        self._runner, self._step, self._rows = runner, step, rows
        self._outputs: list[Any] = []

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """See `CodecHeadFrames`."""
        step = self._step
        infos = [row.info if row.live else None for row in self._rows]
        self._outputs.append(say(step, frame, hidden, infos))
        with self._only_live_rows_draw():
            sampled = draw(self._runner, step, frame, hidden)
        for row, token in zip(self._rows, sampled.tolist(), strict=True):
            if row.live:
                row.take(token)
        if frame + 1 == step.frames:
            return None
        look_again(self._runner)
        return self._embed(sampled, hidden)

    def outputs(self) -> list[Any]:
        """See `CodecHeadFrames`."""
        return self._outputs

    def _embed(self, sampled: Tensor, hidden: Tensor) -> Tensor:
        """What the model itself makes of the ids; zeros for a row that has ended."""
        step = self._step
        embeds = hidden.new_zeros(len(self._rows), hidden.shape[-1])
        for index, row in enumerate(self._rows):
            if not row.live:
                continue
            code = sampled[index : index + 1].to(torch.int64)
            _, own, update = step.model.preprocess(input_ids=code, input_embeds=None, **row.info)
            self._runner._update_intermediate_buffer(row.name, update)
            embeds[index].copy_(own[0])
        return embeds

    @contextmanager
    def _only_live_rows_draw(self) -> Iterator[None]:
        """A block in which the generators of ended requests stay where they are."""
        generators = self._runner.input_batch.sampling_metadata.generators
        kept = dict(generators)
        for index, row in enumerate(self._rows):
            if not row.live and index in generators:
                generators[index] = torch.Generator(device=generators[index].device)
        try:
            yield
        finally:
            generators.update(kept)
