"""A frame tail that stays on the device: sampling, stops, limits and the next embedding.

Nothing between the first and the last frame of a step waits for the device. Afterwards one read
brings back what the host keeps: codes, steps, endings, and whether every row was sane. Every
single-frame step runs the released code, so a request's state goes in before each K-frame step and
comes out after it, history and random generator included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.codec import HISTORY, Codec, CodecTable
from kstep_shim.frames.limits import RowLimits
from kstep_shim.frames.spans import ELIGIBLE_KEY, SPANS_KEY
from kstep_shim.frames.tail import FrameStep
from kstep_shim.frames.tail_kernel import TailKernel

_READ = CodecTable.READ
_STOP_ROW = (float("-inf"), 0.0)
_CONTINUE_ROW = (0.0, float("-inf"))


class InvalidCodecRowError(RuntimeError):
    """A request's code probabilities were not finite, or summed to nothing."""


@dataclass
class _Request:
    """A row's request on the host while a step runs."""

    name: str
    info: dict[str, Any]
    state: dict[str, Any]
    # A request that has ended makes no draw, and the released code gives it no generator either.
    generator: torch.Generator | None
    # Where the generator was before each draw of the step: draws after the end are taken back.
    before: list[Any]


class DeviceTail:
    """Implements `FrameTail` with persistent device buffers.

    Parameters
    ----------
    codec : Codec
        The Talker's sampler.
    rows, frames : int
        Most requests of a step, and K.
    """

    def __init__(self, codec: Codec, rows: int, frames: int) -> None:
        self._codec = codec
        self._table = CodecTable(rows, frames, codec.is_end.device)
        self._kernel = TailKernel(codec, self._table)

    def begin(self, step: FrameStep) -> None:
        """Put every request's codec state into the buffers."""
        self._step = step
        self._limits = RowLimits(step.infos, step.model_kwargs_extra)
        eligible = step.model_kwargs_extra.get(ELIGIBLE_KEY)
        self._eligible = [True] * len(step.infos) if eligible is None else list(eligible)
        eligible_rows = zip(self._eligible, self._limits.left(step.frames), strict=True)
        self._allowed = [left if may else 0 for may, left in eligible_rows]
        self._requests = [self._request(index) for index in range(len(step.infos))]
        # Before the state goes in: a first capture runs on these very buffers.
        self._kernel.prepare(len(self._requests))
        counts, flags = [], []
        for index, request in enumerate(self._requests):
            codes = self._codes(request)
            length = 0 if codes is None else codes.shape[0]
            counts.append(self._numbers(request, self._allowed[index], length))
            spoken = _last_code(request.info) is not None
            flags.append([bool(request.state.get("finished")), True, spoken])
            if codes is not None:
                self._table.set_history(index, codes)
        self._table.load(_columns(counts), _columns(flags))
        for index, request in enumerate(self._requests):
            current = _last_code(request.info)
            if current is not None:
                self._table.set_current(index, current)
        self._hidden: Tensor | None = None

    def frame(self, frame: int, hidden: Tensor) -> Tensor | None:
        """Sample frame `frame` of every request that goes on, and embed for the next one."""
        for index, request in enumerate(self._requests):
            generator = request.generator
            if generator is not None and frame < self._allowed[index]:
                request.before.append(_position(generator))
                self._kernel.noise[index].exponential_(1, generator=generator)
        self._kernel.run(hidden, self._step.rows_at(frame))
        self._hidden = hidden
        return self._kernel.embeds

    def finish(self) -> Any:
        """Read the step back, hand every request its state, and build the model's output.

        Raises
        ------
        InvalidCodecRowError
            Naming the requests; nothing of theirs was emitted.
        """
        step, count = self._step, len(self._requests)
        results = self._table.read(count, step.frames)
        broken = [r.name for r, row in zip(self._requests, results, strict=True) if not row[4]]
        if broken:
            raise InvalidCodecRowError(f"codec probabilities are not finite for requests {broken}")
        histories, currents = self._table.history_copy(count), self._table.current_copy(count)
        deltas, ended = [], []
        for index, (request, row) in enumerate(zip(self._requests, results, strict=True)):
            codes = [code for code in row[_READ : _READ + step.frames] if code >= 0]
            self._hand_back(index, row, len(codes), histories, currents)
            deltas.append(torch.tensor(codes, dtype=torch.int64).reshape(-1, 1))
            ended.append(torch.tensor(bool(row[3]) and request.generator is not None))
        self._store_stop_rows(results)
        return self._output(deltas, ended)

    def _request(self, index: int) -> _Request:
        info, talker = self._step.infos[index], self._codec.talker
        name = str(info.get("request_id", index))
        state = talker._request_audio_states.get(name)
        if not isinstance(state, dict):
            state = dict(info.get("audio_state") or {})
            talker._request_audio_states[name] = state
        device = self._codec.is_end.device
        generator = None if state.get("finished") else talker._request_generator(name, device)
        return _Request(name, info, state, generator, [])

    def _codes(self, request: _Request) -> Tensor | None:
        codes = request.state.get("codes")
        if not isinstance(codes, Tensor):
            codes = (request.info.get("audio_codes") or {}).get("accumulated")
        return codes.reshape(-1)[-HISTORY:] if isinstance(codes, Tensor) else None

    def _numbers(self, request: _Request, allowed: int, length: int) -> list[int]:
        state, talker = request.state, self._codec.talker
        step, ceiling = int(state.get("step", 0)), int(state.get("max_tokens", 2048))
        minimum = int(state.get("min_tokens", talker._codec_min_tokens))
        return [step, 0, 0, ceiling, minimum, allowed, length]

    def _hand_back(
        self, index: int, row: list[int], emitted: int, histories: Tensor, currents: Tensor
    ) -> None:
        request = self._requests[index]
        drawn = row[2]
        if request.generator is None or not drawn:
            return
        if drawn < len(request.before):
            _rewind(request.generator, request.before[drawn])
        state = request.state
        before = self._codes(request)
        length = min(HISTORY, emitted + (0 if before is None else before.shape[0]))
        state["step"], state["finished"] = row[0], bool(row[3])
        state["codes"] = histories[index, HISTORY - length :]
        request.info["audio_state"] = state
        request.info["audio_codes"] = {
            "current": currents[index : index + 1],
            "accumulated": state["codes"],
        }

    def _store_stop_rows(self, results: list[list[int]]) -> None:
        """Keep the stop rows on the host: the verify needs no further device read then."""
        frames = self._step.frames
        left = self._limits.left(frames)
        rows = []
        for index, result in enumerate(results):
            over = self._requests[index].generator is None
            for frame, stopped in enumerate(result[_READ + frames :]):
                stops = over or stopped or frame >= left[index]
                rows.append(_STOP_ROW if stops else _CONTINUE_ROW)
        self._stop_rows = torch.tensor(rows)

    def _output(self, deltas: list[Tensor], ended: list[Tensor]) -> Any:
        """The model's own output for no eligible row, with this step's codes and endings."""
        step = self._step
        extras = {
            **step.model_kwargs_extra,
            SPANS_KEY: [(row, row + 1) for row in step.rows_at(step.frames - 1)],
            ELIGIBLE_KEY: [False] * len(self._requests),
        }
        output = step.model.make_omni_output(self._hidden, **step.model_kwargs, **extras)
        step.model.set_batch_stop_logits(self._stop_rows)
        outputs = output.multimodal_outputs
        return output._replace(
            multimodal_outputs={
                **outputs,
                "codes": {**outputs["codes"], "audio": deltas},
                "meta": {**outputs["meta"], "finished": ended},
            }
        )


def _last_code(info: dict[str, Any]) -> Tensor | None:
    """The code that the next frame starts from, ``[1]``; a request that has said nothing has none.

    The released code leaves an empty tensor there when a prompt was read.
    """
    current = (info.get("audio_codes") or {}).get("current")
    return current.reshape(1) if isinstance(current, Tensor) and current.numel() == 1 else None


def _position(generator: torch.Generator) -> Any:
    """Where `generator` is, without a device read: an offset on CUDA, the whole state elsewhere."""
    return generator.get_offset() if generator.device.type == "cuda" else generator.get_state()


def _rewind(generator: torch.Generator, position: Any) -> None:
    if generator.device.type == "cuda":
        generator.set_offset(position)
    else:
        generator.set_state(position)


def _columns(rows: list[list[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
