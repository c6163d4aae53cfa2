"""What a one-query graph on an NPU takes from the host at every replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor

from kstep_shim.frames.narrow_step import OneQueryGraph


class NpuBackend:
    """Implements `Backend` for vllm-ascend's runner in a FULL mode.

    vllm-ascend keeps the parameters that it re-issues per replay by token count, and a one-query
    graph of four requests has as many tokens as a four-query graph of one: these have their own.
    """

    def __init__(self, runner: Any, sizes: list[int]) -> None:
        from vllm_ascend.compilation import acl_graph

        self._runner, self._module = runner, acl_graph

        def parameters() -> Any:
            events, handles, attention = ({size: list[Any]() for size in sizes} for _ in range(3))
            return acl_graph.GraphParams(events, dict.fromkeys(sizes), handles, attention)

        self._parameters: Any = parameters()
        if isinstance(acl_graph._graph_params, dict):
            # By whether adapters are in use, which an armed stage refuses.
            self._parameters = {False: self._parameters, True: parameters()}

    @contextmanager
    def parameters(self) -> Iterator[None]:
        """Put the one-query graphs' parameters where vllm-ascend looks for them."""
        usual = self._module._graph_params
        self._module._graph_params = self._parameters
        try:
            yield
        finally:
            self._module._graph_params = usual

    def graph(self, rows: int, frames: int, descriptor: Any, mode: Any) -> OneQueryGraph:
        """See `Backend`."""
        return NpuStep(self._runner, rows, frames, descriptor, mode)


class NpuStep:
    """Implements `OneQueryGraph`: lengths are host lists, known for every frame beforehand."""

    def __init__(self, runner: Any, rows: int, frames: int, descriptor: Any, mode: Any) -> None:
        from vllm.forward_context import get_forward_context
        from vllm_ascend.ops.rotary_embedding import update_cos_sin

        size = descriptor.num_tokens
        self._update_rotary, self._positions, self._size = update_cos_sin, runner.positions, size
        self._tokens = rows * frames
        table = runner.input_batch.block_table[0]
        self.slot_mapping: Tensor = table.slot_mapping.gpu[:size]
        self.seq_lens: Tensor = runner.seq_lens[:size]
        padding, unused = self.slot_mapping[rows:], self.seq_lens[rows:]
        self.constants = [
            (padding, torch.full_like(padding, -1)),
            (unused, torch.zeros_like(unused)),
        ]
        lengths = runner.optimistic_seq_lens_cpu[:rows].tolist()
        self._lengths = [length - frames + 1 for length in lengths]
        by_layer = get_forward_context().attn_metadata
        narrow = {id(metadata): copy(metadata) for metadata in by_layer.values()}
        self._metadata = list(narrow.values())
        for metadata in self._metadata:
            metadata.actual_seq_lengths_q = list(range(1, size + 1))
            metadata.block_tables = table.get_device_tensor(size)
        self.context = {
            "batch_descriptor": descriptor,
            "cudagraph_runtime_mode": mode,
            "attn_metadata": {layer: narrow[id(found)] for layer, found in by_layer.items()},
        }

    def before_replay(self, frame: int) -> None:
        """Set the lengths that the parameter update of this replay re-issues."""
        lengths = [length + frame for length in self._lengths]
        for metadata in self._metadata:
            metadata.seq_lens_list = lengths + [0] * (self._size - len(lengths))
        self._update_rotary(self._positions[: self._size])

    def after_step(self) -> None:
        """Leave the rotary tables as the K-wide step had them."""
        self._update_rotary(self._positions[: self._tokens])
