"""The frames of a codec-head step without a look at the ids: they stay on the device.

Every row is taken to go on to the step's end. What a frame needs to know on the host does not
depend on the ids then: how many there are, and when the codec must or must not end. Afterwards one
read brings the ids, draws behind a request's end are taken back, and the model hears of the codes
that were really said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.codec_head_frames import draw, look_again, say
from kstep_shim.frames.codec_head_row import CodecHeadRow
from kstep_shim.frames.draws import position, rewind
from kstep_shim.frames.tail import FrameStep


def may_be_blind(rows: list[CodecHeadRow], codec_end: int) -> bool:
    """Whether no request of the step needs its ids on the host between two frames.

    Penalties of vLLM's own, bad words and repetition detection look at them; a codec end that
    does not end the request changes what follows; duplex sampling looks at the session.
    """
    for row in rows:
        params = row.request.sampling_params
        if params.presence_penalty or params.frequency_penalty or params.bad_words:
            return False
        if getattr(params, "repetition_detection", None) is not None:
            return False
        if codec_end not in (params.stop_token_ids or ()):
            return False
        if row.info.get("native_duplex") is True:
            return False
    return True


class BlindFrames:
    """Implements `CodecHeadFrames` with one host read, after the last frame."""

    def __init__(self, runner: Any, step: FrameStep, rows: list[CodecHeadRow]) -> None:
        self._runner, self._step, self._rows = runner, step, rows
        self._talker = step.model.talker
        self._generators = dict(runner.input_batch.sampling_metadata.generators)
        self._positions: list[dict[int, Any]] = []

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """See `CodecHeadFrames`."""
        step, talker = self._step, self._talker
        if frame == 0:
            self._first = say(step, 0, hidden, [row.info for row in self._rows])
            self._histories = [
                history.to(hidden.device, non_blocking=True)
                for history in talker._penalty_histories
            ]
            self._drawn = torch.empty(
                len(self._rows), step.frames, dtype=torch.int64, device=hidden.device
            )
            states = talker._request_audio_states
            self._shadows = {row.name: dict(states[row.name]) for row in self._rows}
        else:
            with self._shadow_states():
                say(step, frame, hidden, [self._unseen(row) for row in self._rows])
            talker._penalty_histories = [
                torch.cat((history, self._drawn[row, :frame]))
                for row, history in enumerate(self._histories)
            ]
        self._positions.append({row: position(g) for row, g in self._generators.items()})
        drawn = draw(self._runner, step, frame, hidden)
        self._drawn[:, frame].copy_(drawn)
        self._hidden = hidden
        for row in self._rows:
            row.expect()
        if frame + 1 == step.frames:
            return None
        look_again(self._runner)
        embeds: Tensor = talker.emb_code[0](self._drawn[:, frame])
        return embeds

    def outputs(self) -> list[Any]:
        """See `CodecHeadFrames`: this is where the ids are read."""
        frames = self._step.frames
        for index, (row, tokens) in enumerate(zip(self._rows, self._drawn.tolist(), strict=True)):
            row.forget_expected()
            for token in tokens:
                if row.live:
                    row.take(token)
            if index in self._generators and len(row.ids) < frames:
                rewind(self._generators[index], self._positions[len(row.ids)][index])
        said = [self._first, *(self._say_again(frame) for frame in range(1, frames))]
        # One-shot rows for `compute_logits`, which has been called for every frame already.
        self._talker._force_eos_rows = self._talker._mask_eos_rows = None
        self._talker._penalty_histories = None
        return said

    def _say_again(self, frame: int) -> Any:
        """Tell the model of a frame with the codes that were drawn before it."""
        infos: list[Any] = []
        for row in self._rows:
            going = len(row.ids) > frame
            if going:
                code = torch.tensor([[row.ids[frame - 1]]], dtype=torch.int64)
                self._runner._update_intermediate_buffer(row.name, {"codes": {"audio": code}})
            infos.append(row.info if going else None)
        return say(self._step, frame, self._hidden, infos)

    def _unseen(self, row: CodecHeadRow) -> dict[str, Any]:
        """The row's buffer as it would be with some code, except where the codec has ended."""
        finished = self._shadows[row.name].get("finished")
        shape = (0,) if finished else (1, 1)
        code = torch.zeros(shape, dtype=torch.int64, device="cpu")
        return {**row.info, "codes": {**row.info.get("codes", {}), "audio": code}}

    @contextmanager
    def _shadow_states(self) -> Iterator[None]:
        """A block in which the model counts on copies of the rows' codec states."""
        states = self._talker._request_audio_states
        self._talker._request_audio_states = self._shadows
        try:
            yield
        finally:
            self._talker._request_audio_states = states
