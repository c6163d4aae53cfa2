"""``torch.Generator`` on the npu."""

from __future__ import annotations

from typing import Any

import torch

from softnpu.device import to_cpu


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    # Generators which torch makes itself are of the class below this one.
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):  # type: ignore[misc]
    """A generator of random numbers; one for the npu works on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Map the device."""
        generator: Generator = super().__new__(cls, to_cpu(device))
        return generator


def activate() -> None:
    """Replace ``torch.Generator``."""
    torch.Generator = Generator
