"""The frame tail of a codec-head Talker: the model's and the runner's own methods, per frame."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from kstep_shim.counters import counters
from kstep_shim.frames.codec_head_blind import BlindFrames, may_be_blind
from kstep_shim.frames.codec_head_frames import CodecHeadFrames, SeenFrames
from kstep_shim.frames.codec_head_row import CodecHeadRow
from kstep_shim.frames.merge import any_finished
from kstep_shim.frames.spans import REMAINING_KEY
from kstep_shim.frames.tail import FrameStep
from kstep_shim.frames.verify import PLACEHOLDER_TOKEN_ID


class CodecHeadTail:
    """Implements `FrameTail`: ids stay on the device for the step where its requests allow it.

    Parameters
    ----------
    runner : Any
        The model runner.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._ids: Tensor | None = None

    def begin(self, step: FrameStep) -> None:
        """Look at the step's requests."""
        from vllm_omni.worker.sampling_utils import sanitize_min_tokens_stop_ids

        runner, talker = self._runner, step.model.talker
        names = runner.input_batch.req_ids
        remaining = step.model_kwargs_extra.get(REMAINING_KEY) or [None] * len(names)
        self._width, self._talker = step.frames, talker
        self._rows = [
            CodecHeadRow(name, info, runner.requests[name], left, runner.max_model_len)
            for name, info, left in zip(names, step.infos, remaining, strict=True)
        ]
        blind = may_be_blind(self._rows, int(talker._codec_eos_id))
        counters().increment("steps_with_reads", not blind)
        kind = BlindFrames if blind else SeenFrames
        self._frames: CodecHeadFrames = kind(runner, step, self._rows)
        # The stock step does it before it samples.
        metadata = runner.input_batch.sampling_metadata
        sanitize_min_tokens_stop_ids(metadata.logitsprocs, talker._num_audio_tokens)

    def beside(self) -> AbstractContextManager[None]:
        """Where everything is issued."""
        return nullcontext()

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Draw frame `frame` of every request that goes on, and embed for the next one."""
        return self._frames.frame(frame, hidden)

    def finish(self) -> Any:
        """Join the frames, and keep the ids for the runner's ``_sample``."""
        outputs = self._frames.outputs()
        for row in self._rows:
            row.take_back()
        self._ids = torch.tensor(
            [row.ids + [PLACEHOLDER_TOKEN_ID] * (self._width - len(row.ids)) for row in self._rows],
            dtype=torch.int32,
        )
        # The head over all K rows would be computed for nothing.
        self._talker._kstep_shim_drawn = True
        return self._joined(outputs)

    def take_ids(self) -> Tensor:
        """The step's ids, int32 ``[n, K]``, -1 behind a request's end; once."""
        ids, self._ids = self._ids, None
        if ids is None:
            raise RuntimeError("kstep_shim: a drafted step has no ids of its frames")
        return ids

    def _joined(self, outputs: list[Any]) -> Any:
        """One output: what each request said until it ended, its last words on everything else."""
        every = [output.multimodal_outputs for output in outputs]
        spoken = [every[: len(row.ids)] for row in self._rows]
        # The last frame may have had no duplex request left, and says nothing of them then.
        meta = {
            key: [_last_said(frames, key, row) for row, frames in enumerate(spoken)]
            for key in every[0]["meta"]
        }
        meta["finished"] = [
            any_finished([frame["meta"]["finished"][row] for frame in frames])
            for row, frames in enumerate(spoken)
        ]
        codes = [
            torch.cat([frame["codes"]["audio"][row] for frame in frames])
            for row, frames in enumerate(spoken)
        ]
        return outputs[-1]._replace(
            multimodal_outputs={
                **every[-1],
                "codes": {**every[-1]["codes"], "audio": codes},
                "meta": meta,
            }
        )


def _last_said(frames: list[Any], key: str, row: int) -> Any:
    """The newest ``meta`` entry `key` of a request in its frames; the first frame has every key."""
    return next(frame["meta"][key][row] for frame in reversed(frames) if key in frame["meta"])
