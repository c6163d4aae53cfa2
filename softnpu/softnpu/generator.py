"""``torch.Generator`` on the npu."""

from __future__ import annotations

from typing import Any

import torch

from softnpu.device import is_npu, to_cpu

_OFFSET_OF_A_DRAW = 4


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    # Generators which torch makes itself are of the class below this one.
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):  # type: ignore[misc]
    """A generator of random numbers; one for the npu works on the CPU.

    One for the npu has an offset, by which the stack takes a draw back that it made too much.
    """

    _on_npu: bool
    _offset = 0
    _before: torch.Tensor | None = None

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Map the device."""
        generator: Generator = super().__new__(cls, to_cpu(device))
        generator._on_npu = is_npu(device)
        return generator

    def manual_seed(self, seed: int) -> Generator:
        """Begin anew."""
        self._offset, self._before = 0, None
        super().manual_seed(seed)
        return self

    def note_draw(self) -> None:
        """Advance the offset; called before each op which draws."""
        if self._on_npu:
            self._offset += _OFFSET_OF_A_DRAW
            self._before = self.get_state()

    def get_offset(self) -> int:
        """Return the offset."""
        return self._offset if self._on_npu else int(super().get_offset())

    def set_offset(self, offset: int) -> None:
        """Take the last draw back; no other offset can be set."""
        if not self._on_npu:
            super().set_offset(offset)
        elif offset == self._offset - _OFFSET_OF_A_DRAW and self._before is not None:
            self.set_state(self._before)
            self._offset, self._before = offset, None
        elif offset != self._offset:
            raise NotImplementedError(f"softnpu: set_offset({offset}) at {self._offset}")


def activate() -> None:
    """Replace ``torch.Generator``."""
    torch.Generator = Generator
