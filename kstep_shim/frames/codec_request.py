"""One request's codec state on the host, between the released code and the device tail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.codec import HISTORY, Codec
from kstep_shim.frames.draws import position, rewind


@dataclass
class CodecRequest:
    """A row's request while a K-frame step runs.

    Attributes
    ----------
    name, info : str, dict
        Its id and its live buffer.
    state : dict
        The released codec state: ``step``, ``max_tokens``, ``min_tokens``, ``finished``, ``codes``.
    generator : torch.Generator or None
        ``None`` for a request that has ended: it makes no draw, and the released code would not
        make a generator for it either.
    positions : list
        Where the generator was before each draw of the step; draws after the end are taken back.
    """

    name: str
    info: dict[str, Any]
    state: dict[str, Any]
    generator: torch.Generator | None
    positions: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, codec: Codec, index: int, info: dict[str, Any]) -> CodecRequest:
        """The request whose buffer is `info`, at `index` of the batch."""
        talker = codec.talker
        name = str(info.get("request_id", index))
        state = talker._request_audio_states.get(name)
        if not isinstance(state, dict):
            state = dict(info.get("audio_state") or {})
            talker._request_audio_states[name] = state
        if state.get("finished"):
            return cls(name, info, state, None)
        return cls(name, info, state, talker._request_generator(name, codec.is_end.device))

    @property
    def codes(self) -> Tensor | None:
        """The codes that the penalty looks back on, newest last, at most 16."""
        codes = self._history
        return None if codes is None else codes.reshape(-1)[-HISTORY:]

    @property
    def last_code(self) -> Tensor | None:
        """The code that the next frame starts from, ``[1]``; ``None`` before the first one.

        The released code leaves an empty tensor there when a prompt was read.
        """
        current = (self.info.get("audio_codes") or {}).get("current")
        return current.reshape(1) if isinstance(current, Tensor) and current.numel() == 1 else None

    def numbers(self, codec: Codec, allowed: int) -> list[int]:
        """This row of ``CodecTable.NUMBERS`` for a step in which it may draw `allowed` frames."""
        step, ceiling = self.step, int(self.state.get("max_tokens", 2048))
        minimum = int(self.state.get("min_tokens", codec.talker._codec_min_tokens))
        spoken = self.last_code is not None
        return [allowed, ceiling - step - 1, minimum - step, self._length, spoken]

    @property
    def _history(self) -> Tensor | None:
        codes = self.state.get("codes")
        if not isinstance(codes, Tensor):
            codes = (self.info.get("audio_codes") or {}).get("accumulated")
        return codes if isinstance(codes, Tensor) else None

    @property
    def _length(self) -> int:
        codes = self._history
        return 0 if codes is None else min(HISTORY, codes.numel())

    @property
    def step(self) -> int:
        """Frames drawn so far."""
        return int(self.state.get("step", 0))

    def draw(self, noise: Tensor) -> None:
        """Fill `noise` from the request's generator; there must be one."""
        generator = self.generator
        assert generator is not None
        self.positions.append(position(generator))
        noise.exponential_(1, generator=generator)

    def take_back(self, *, drawn: int, finished: bool, emitted: int, codes: Tensor,
                  current: Tensor) -> None:  # fmt: skip
        """Hand the state back to the released code after `drawn` draws and `emitted` codes.

        `codes` ``[16 + frames]`` and `current` ``[1]`` are copies that no later step changes.
        """
        if self.generator is None or not drawn:
            return
        self.rewind(drawn)
        length = min(HISTORY, emitted + self._length)
        newest = HISTORY + emitted
        self.state.update(
            step=self.step + drawn, finished=finished, codes=codes[newest - length : newest]
        )
        self.info["audio_state"] = self.state
        self.info["audio_codes"] = {"current": current, "accumulated": self.state["codes"]}

    def rewind(self, drawn: int) -> None:
        """Put the generator back to where it was after `drawn` draws of the step."""
        if self.generator is None or drawn >= len(self.positions):
            return
        rewind(self.generator, self.positions[drawn])
