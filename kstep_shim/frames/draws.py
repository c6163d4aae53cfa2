"""Draws of a random generator: taking them back, and how this device samples with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_TRIALS = 8


def position(generator: torch.Generator) -> Any:
    """Where `generator` is. Never waits for the device: an offset on CUDA, else the state."""
    return generator.get_offset() if generator.device.type == "cuda" else generator.get_state()


def rewind(generator: torch.Generator, to: Any) -> None:
    """Put `generator` back to a `position`."""
    if generator.device.type == "cuda":
        generator.set_offset(to)
    else:
        generator.set_state(to)


def multinomial_problem(like: Tensor) -> str | None:
    """Say why the device tail's draw would not be ``torch.multinomial``'s, or ``None``.

    On CPU and CUDA they are the same; a back end may bring a kernel of its own. Ids, the
    generator's state afterwards, and setting that state back are all compared, on the device and
    with the vocabulary of `like` ``[1, vocabulary]``. Reads the device: ask before serving.
    """
    try:
        stock, ours = (torch.Generator(device=like.device) for _ in range(2))
        for generator in (stock, ours):
            generator.manual_seed(42)
        for trial in range(_TRIALS):
            ramp = torch.arange(like.shape[1], device=like.device, dtype=torch.float32)
            chances = torch.softmax(torch.sin(ramp * (trial + 1))[None] * (trial + 1), dim=-1)
            before = ours.get_state()
            expected = torch.multinomial(chances, num_samples=1, generator=stock).reshape(1)
            for _ in range(2):  # the second time from the state that was set back
                ours.set_state(before)
                noise = torch.empty_like(chances).exponential_(1, generator=ours)
                if not torch.equal(torch.argmax(chances / noise, dim=-1), expected):
                    return "torch.multinomial draws other ids on this device"
            if not torch.equal(stock.get_state(), ours.get_state()):
                return "torch.multinomial advances the generator otherwise on this device"
    except (RuntimeError, NotImplementedError) as error:
        return f"the draw cannot be checked on this device: {error}"
    return None
