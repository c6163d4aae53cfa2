"""A frame tail that stays on the device: sampling, stops, limits and the next embedding.

Nothing between the first and the last frame of a step waits for the device. Afterwards one read
brings back what the host keeps: codes, steps, endings, and whether every row was sane. Every
single-frame step runs the released code, so a request's state goes in before each K-frame step and
comes out after it, history and random generator included.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.aside import Aside
from kstep_shim.frames.codec import Codec
from kstep_shim.frames.codec_request import CodecRequest
from kstep_shim.frames.codec_table import CodecTable
from kstep_shim.frames.limits import RowLimits
from kstep_shim.frames.spans import ELIGIBLE_KEY, SPANS_KEY
from kstep_shim.frames.tail import FrameStep
from kstep_shim.frames.tail_kernel import TailKernel

# What the aside stream does: the next forward's inputs, and the next draw's noise.
_INPUTS, _NOISE = "inputs", "noise"
_READ = CodecTable.READ
_STOP_ROW = (float("-inf"), 0.0)
_CONTINUE_ROW = (0.0, float("-inf"))


class InvalidCodecRowError(RuntimeError):
    """A request's code probabilities were not finite, or summed to nothing."""


class DeviceTail:
    """Implements `FrameTail` with persistent device buffers.

    Parameters
    ----------
    codec : Codec
        The Talker's sampler.
    rows, frames : int
        Most requests of a step, and K.

    Attributes
    ----------
    kernel : TailKernel
        What runs on the device.
    """

    def __init__(self, codec: Codec, rows: int, frames: int) -> None:
        self._codec = codec
        self._table = CodecTable(rows, frames, codec.talker.emb_code[0].weight)
        self.kernel = TailKernel(codec, self._table)
        self._aside = Aside(codec.is_end.device, _INPUTS, _NOISE)
        # Codec states that the rows hold, with the frames drawn by then.
        self._resident: list[tuple[dict[str, Any], int]] = []
        self._template: Any = None
        # The stop rows of a request that stops at frame n, for each n: ``[frames + 1, frames, 2]``.
        self._patterns = torch.tensor(
            [[_CONTINUE_ROW if f < stop else _STOP_ROW for f in range(frames)]
             for stop in range(frames + 1)]
        )  # fmt: skip

    def begin(self, step: FrameStep) -> None:
        """Look at every request, and upload what the first frame needs to know of it."""
        self._step = step
        self._left = RowLimits(step.infos, step.model_kwargs_extra).left(step.frames)
        self._requests = [
            CodecRequest.of(self._codec, index, info) for index, info in enumerate(step.infos)
        ]
        count = len(self._requests)
        eligible = step.model_kwargs_extra.get(ELIGIBLE_KEY) or [True] * count
        self._allowed = [
            left if may and request.generator is not None else 0
            for request, may, left in zip(self._requests, eligible, self._left, strict=True)
        ]
        # Before the state goes in: a first capture runs on these very buffers.
        spoiled = self.kernel.prepare(count)
        self._codes_there = not spoiled and self._left_here()
        rows = zip(self._requests, self._allowed, strict=True)
        self._table.upload([request.numbers(self._codec, allowed) for request, allowed in rows])
        self._aside.follow()

    def beside(self) -> AbstractContextManager[None]:
        """Beside the sampling of the frame whose forward was issued last."""
        return self._aside.work(_INPUTS)

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Sample frame `frame` of every request that goes on, and embed for the next one."""
        step, kernel, aside = self._step, self.kernel, self._aside
        if frame == 0:
            # While the device is at the first forward.
            with aside.work(_NOISE, follow=False):
                self._load()
        kernel.take(hidden, step.rows_at(frame), step.slice_at(frame))
        aside.wait(_NOISE)
        kernel.sample()
        with aside.work(_NOISE):
            kernel.settle()
            self._draw(frame + 1)
        aside.wait(_INPUTS)
        self._hidden = hidden
        if frame + 1 == step.frames:
            aside.join()
        return kernel.embeds

    def _load(self) -> None:
        """Put every request's codec state into the buffers, and look ahead at frame 0."""
        if not self._codes_there:
            for index, request in enumerate(self._requests):
                codes, current = request.codes, request.last_code
                if codes is not None:
                    self._table.set_codes(index, codes)
                if current is not None:
                    self._table.set_current(index, current)
        self._table.begin(len(self._requests))
        self.kernel.look_ahead()
        self._draw(0)

    def _draw(self, frame: int) -> None:
        """Draw the noise of frame `frame` for every request that may still speak then."""
        for index, request in enumerate(self._requests):
            if frame < self._allowed[index]:
                request.draw(self.kernel.noise[index])

    def finish(self) -> Any:
        """Read the step back, hand every request its state, and build the model's output.

        Raises
        ------
        InvalidCodecRowError
            Naming the requests; nothing of theirs was emitted.
        """
        count = len(self._requests)
        # Issued before the read waits for the device.
        codes, currents = self._table.codes_copy(count), self._table.current_copy(count)
        packed = self._table.pack(count)
        self._table.keep_codes(count)
        results = self._table.read(packed)
        emitted, valid = results[:, 0].tolist(), results[:, 1].tolist()
        broken = [r.name for r, sane in zip(self._requests, valid, strict=True) if not sane]
        if broken:
            raise InvalidCodecRowError(f"codec probabilities are not finite for requests {broken}")
        ended = [count < may for count, may in zip(emitted, self._allowed, strict=True)]
        deltas = [row[_READ : _READ + n, None] for row, n in zip(results, emitted, strict=True)]
        for index, request in enumerate(self._requests):
            request.take_back(
                # The frame in which the codec ends is drawn, too.
                drawn=emitted[index] + ended[index],
                finished=ended[index],
                emitted=emitted[index],
                codes=codes[index],
                current=currents[index : index + 1],
            )
        self._resident = [(request.state, request.step) for request in self._requests]
        self._store_stop_rows(emitted)
        return self._output(deltas, list(torch.tensor(ended).unbind()))

    def _left_here(self) -> bool:
        """Whether the rows hold these very requests, as the last K-frame step left them."""
        if len(self._requests) != len(self._resident):
            return False
        pairs = zip(self._requests, self._resident, strict=True)
        return all(now.state is state and state.get("step") == step for now, (state, step) in pairs)

    def _stock_output(self) -> Any:
        """What the model says of a step in which no row may be sampled: all but the frames."""
        step = self._step
        extras = {
            **step.model_kwargs_extra,
            SPANS_KEY: [(row, row + 1) for row in step.rows_at(step.frames - 1)],
            ELIGIBLE_KEY: [False] * len(self._requests),
        }
        return step.model.make_omni_output(self._hidden, **step.model_kwargs, **extras)

    def _store_stop_rows(self, emitted: list[int]) -> None:
        """Keep the stop rows on the host: the verify needs no further device read then."""
        stops = []
        for index, request in enumerate(self._requests):
            stop = self._left[index]
            if request.generator is None:
                stop = 0
            elif emitted[index] < self._allowed[index]:
                stop = min(stop, emitted[index])
            stops.append(stop)
        self._stop_rows = self._patterns[stops, : self._step.frames].flatten(0, 1)

    def _output(self, deltas: list[Tensor], ended: list[Tensor]) -> Any:
        """The model's own kind of output, with this step's codes and endings."""
        step = self._step
        duplex = any(request.info.get("native_duplex") is True for request in self._requests)
        output = self._stock_output() if self._template is None or duplex else self._template
        step.model.set_batch_stop_logits(self._stop_rows)
        outputs = output.multimodal_outputs
        if not duplex:
            self._template = output._replace(text_hidden_states=None)
        return output._replace(
            text_hidden_states=self._hidden,
            multimodal_outputs={
                **outputs,
                "codes": {**outputs["codes"], "audio": deltas},
                "meta": {**outputs["meta"], "finished": ended},
            },
        )
