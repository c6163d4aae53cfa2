"""Codec state of a step's requests on the device, a row each, in buffers that outlive the step."""

from __future__ import annotations

import torch
from torch import Tensor

from kstep_shim.frames.codec import HISTORY


class CodecTable:
    """What a frame needs to know of each row.

    Parameters
    ----------
    rows, frames : int
        Most requests, and most frames of a step.
    like : Tensor
        A weight of the Talker's code embedding: device and dtype.

    Attributes
    ----------
    stop_at : Tensor
        ``[rows]``: the step's frame from which on the row is not live: the frames that it may
        draw at first, and the frame in which the codec ends, which emits nothing, if it does.
    last, floor : Tensor
        ``[rows]``: the step's frame in which the codec reaches its ceiling, and the first one in
        which it may end.
    length : Tensor
        ``[rows]``: codes that the penalty looks back on before the step.
    spoken : Tensor
        ``[rows, 1]``: 1 where there is a code to embed, in the embedding's dtype.
    valid : Tensor
        ``[rows]``: whether the probabilities of all frames drawn were sane.
    codes : Tensor
        ``[rows, 16 + frames]``: the latest codes before the step, newest last, then the step's.
    current : Tensor
        ``[rows]``: last id drawn.
    frame : Tensor
        ``[1]``: the step's frame counter, so that the same captured operations serve every frame.
    """

    #: What `upload` takes of each row, in this order.
    NUMBERS = ("stop_at", "last", "floor", "length", "spoken")
    #: Entries of a row that `read` returns before the codes.
    READ = 2

    def __init__(self, rows: int, frames: int, like: Tensor) -> None:
        self.rows, self.frames = rows, frames
        device = like.device
        shape = (len(self.NUMBERS), rows)
        self._numbers = torch.zeros(shape, dtype=torch.int64, device=device)
        # Pinned, so that the upload need not wait for what the device is at.
        pin = device.type == "cuda"
        self._uploaded = torch.zeros(shape, dtype=torch.int64, pin_memory=pin)
        self.stop_at, self.last, self.floor, self.length, self._spoken = self._numbers.unbind()
        self.spoken = torch.zeros(rows, 1).to(like)
        self.valid = torch.zeros(rows, dtype=torch.bool, device=device)
        self.codes = torch.zeros(rows, HISTORY + frames, dtype=torch.int64, device=device)
        self.current = torch.zeros(rows, dtype=torch.int64, device=device)
        self.frame = torch.zeros(1, dtype=torch.int64, device=device)
        self._ahead = torch.arange(HISTORY, device=device)

    def upload(self, numbers: list[list[int]]) -> None:
        """Bring these `NUMBERS` of a step's rows to the device, without waiting for it."""
        self._uploaded[:, : len(numbers)] = torch.tensor(numbers).T
        self._numbers.copy_(self._uploaded, non_blocking=True)

    def begin(self, count: int) -> None:
        """Begin a step with the numbers that were uploaded; codes stay as they are."""
        self.spoken[:count].copy_(self._spoken[:count, None])
        self.valid[:count].fill_(True)
        self.frame.zero_()

    def keep_codes(self, count: int) -> None:
        """Let the step's codes be the latest ones of the next step with the same rows."""
        at = self.stop_at[:count, None] + self._ahead
        self.codes[:count, :HISTORY].copy_(self.codes[:count].gather(1, at))

    def set_codes(self, index: int, codes: Tensor) -> None:
        """Write a row's latest codes, at most 16, newest last."""
        if codes.shape[0]:
            self.codes[index, HISTORY - codes.shape[0] : HISTORY].copy_(codes)

    def set_current(self, index: int, code: Tensor) -> None:
        """Write a row's last id, ``[1]``."""
        self.current[index : index + 1].copy_(code)

    def window(self, count: int) -> tuple[Tensor, Tensor]:
        """The codes that the coming frame's penalty looks back on, and 1.0 for those that count.

        Both ``[count, 16]``.
        """
        codes = self.codes[:count].index_select(1, self.frame + self._ahead)
        oldest = HISTORY - self.length[:count, None] - self.frame
        return codes, (self._ahead >= oldest).to(torch.float32)

    def pack(self, count: int) -> Tensor:
        """What the host keeps of a step, ``[count, 2 + frames]``: see `read`."""
        books = (self.stop_at[:count, None], self.valid[:count, None].to(torch.int64))
        return torch.cat((*books, self.codes[:count, HISTORY:]), dim=1)

    def read(self, packed: Tensor) -> Tensor:
        """The step's one device read: per row `stop_at`, `valid`, then an id for each frame.

        Ids from `stop_at` on were not emitted.
        """
        return packed.cpu()

    def codes_copy(self, count: int) -> Tensor:
        """A copy of the codes, ``[count, 16 + frames]``, that later steps do not change."""
        return self.codes[:count].clone()

    def current_copy(self, count: int) -> Tensor:
        """A copy of the last ids drawn, ``[count]``."""
        return self.current[:count].clone()
