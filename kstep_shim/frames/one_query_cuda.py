"""What a one-query CUDA graph reads, and what the attention back end precomputes for it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.narrow_step import OneQueryGraph

#: Builders whose graphs take everything from buffers, which `build` refreshes.
_BUILDERS = ("FlashAttentionMetadataBuilder", "TritonAttentionMetadataBuilder")


class CudaBackend:
    """Implements `Backend` for vllm's CUDA runner.

    Raises
    ------
    RuntimeError
        The attention back end is not known to take a step's layout from device buffers.
    """

    def __init__(self, runner: Any, sizes: list[int]) -> None:
        groups = [group for of_cache in runner.attn_groups for group in of_cache]
        builders = [group.get_metadata_builder(0) for group in groups]
        names = [type(builder).__name__ for builder in builders]
        if len(names) != 1 or names[0] not in _BUILDERS:
            raise RuntimeError(f"attention metadata built by {', '.join(names)}")
        self._runner, self._builder = runner, builders[0]
        # Per row count and size: the layout of a step, which no step changes.
        self._layouts: dict[tuple[int, int], _Layout] = {}

    def parameters(self) -> AbstractContextManager[None]:
        """CUDA graphs have no parameters beside their buffers."""
        return nullcontext()

    def graph(self, rows: int, frames: int, descriptor: Any, mode: Any) -> OneQueryGraph:
        """See `Backend`."""
        size = descriptor.num_tokens
        if (rows, size) not in self._layouts:
            self._layouts[rows, size] = _Layout(self._runner, self._builder, rows, size)
        layout = self._layouts[rows, size]
        longest = int(self._runner.optimistic_seq_lens_cpu[:rows].max())
        context = {"batch_descriptor": descriptor, "cudagraph_runtime_mode": mode}
        return CudaStep(layout, longest - frames + 1, context)


class _Layout:
    """The graph's buffers for `rows` requests padded to `size`, and what they hold all step."""

    def __init__(self, runner: Any, builder: Any, rows: int, size: int) -> None:
        from vllm.v1.attention.backend import CommonAttentionMetadata

        table = runner.input_batch.block_table[0]
        starts = runner.query_start_loc.gpu[: size + 1]
        values = torch.arange(size + 1, device=starts.device, dtype=starts.dtype).clamp_(max=rows)
        self.builder = builder
        self.slot_mapping: Tensor = table.slot_mapping.gpu[:size]
        self.seq_lens: Tensor = runner.seq_lens[:size]
        padding, unused = self.slot_mapping[rows:], self.seq_lens[rows:]
        self.constants: list[tuple[Tensor, Tensor]] = [
            (starts, values),
            (padding, torch.full_like(padding, -1)),
            (unused, torch.zeros_like(unused)),
        ]
        schedule = getattr(builder, "scheduler_metadata", None)
        if isinstance(schedule, Tensor):
            # Written by every build; listed so that the step's own comes back afterwards.
            self.constants.append((schedule, schedule))
        self.metadata = CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=values.cpu(),
            seq_lens=self.seq_lens,
            num_reqs=size,
            num_actual_tokens=size,
            max_query_len=1,
            max_seq_len=0,
            block_table_tensor=table.get_device_tensor(size),
            slot_mapping=self.slot_mapping,
        )


class CudaStep:
    """Implements `OneQueryGraph`: the graph of one size, in one step."""

    def __init__(self, layout: _Layout, longest: int, context: dict[str, Any]) -> None:
        self.slot_mapping, self.seq_lens = layout.slot_mapping, layout.seq_lens
        self.constants, self.context = layout.constants, context
        self._layout, self._longest = layout, longest

    def before_replay(self, frame: int) -> None:
        """Let the back end precompute for this frame's lengths, as it does for a step at K=1."""
        self._layout.metadata.max_seq_len = self._longest + frame
        self._layout.builder.build(0, self._layout.metadata)

    def after_step(self) -> None:
        """Nothing: the buffers are restored by whoever saved them."""
