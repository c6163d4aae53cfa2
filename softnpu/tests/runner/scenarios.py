"""What is done with the real runner, one scenario a process."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
import vllm_ascend.utils

import softnpu
from runner import stacks
from runner.rig import Rig, prefer_enpu

Result = dict[str, Any]


def plain(mode: str | None = None) -> Result:
    """Run the requests to their end."""
    rig = Rig(mode)
    before = softnpu.kernel_calls()
    rig.run()
    return rig.result() | {
        "custom_ops_loaded": vllm_ascend.utils._CUSTOM_OP_ENABLED is not None,
        "before": before,
        "after": softnpu.kernel_calls(),
    }


def seeded_sampling() -> Result:
    """Sample the stop token with the generator of a client's seed."""
    rig = Rig(temperature=1.0)
    rig.run(requests=2, max_steps=20)
    generators = rig.runner.input_batch.generators
    return rig.result() | {"generators": [type(each).__name__ for each in generators.values()]}


def enpu() -> Result:
    """Update, then replay."""
    prefer_enpu()
    return plain("FULL_DECODE_ONLY")


def host_calls() -> Result:
    """Count how often the model's Python code runs."""
    rig = Rig("FULL_DECODE_ONLY")
    calls = []
    model = rig.runner.model.runnable
    original = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    model.forward = forward
    rig.run(requests=2, max_steps=12)
    return rig.result() | {"host_calls": len(calls), "after": softnpu.kernel_calls()}


def poisoned_pool() -> Result:
    """Before each replay, spoil the memory of all other graphs: on a device they share a pool."""
    rig = Rig("FULL_DECODE_ONLY")
    poisoned = []
    graph_class = torch.npu.NPUGraph
    original = graph_class.replay

    def replay(self: Any) -> None:
        for other in softnpu.live_graphs():
            if other is not self:
                for tensor in other.owned_tensors():
                    if tensor.is_floating_point():
                        tensor.fill_(float("nan"))
                        poisoned.append(1)
        original(self)

    graph_class.replay = replay
    rig.run()
    return rig.result() | {"poisoned": len(poisoned)}


def without_update() -> Result:
    """Never give the replays their arguments."""
    rig = Rig("FULL_DECODE_ONLY")
    if stacks.graphs_update_themselves(rig.runner):
        rig.runner.model.set_attn_backend(None)
    rig.runner._update_full_graph_params_if_needed = lambda *args, **kwargs: None
    try:
        rig.run()
    except RuntimeError as error:
        return rig.result() | {"error": str(error)}
    return rig.result() | {"error": None}


def fresh_input() -> Result:
    """Hand the graphs an input which is not the one of the capture."""
    rig = Rig("FULL_DECODE_ONLY")

    def call(original: Callable[..., Any], options: Result) -> Any:
        if _is_full_graph() and options.get("inputs_embeds") is not None:
            options["inputs_embeds"] = options["inputs_embeds"].clone()
            rig.runner.inputs_embeds.gpu.zero_()
        return original(**options)

    _around_model(rig, call)
    rig.run(requests=1, max_steps=12)
    return rig.result()


def repeated_forward() -> Result:
    """Replay the same graph four times in each step, with its update after each replay."""
    rig = Rig("FULL_DECODE_ONLY")
    original = rig.runner._update_full_graph_params_if_needed

    def update(*args: Any) -> None:
        original(*args)
        if _is_full_graph():
            for _ in range(3):
                rig.runner.model()  # a replay reads the buffers of the capture
                original(*args)

    rig.runner._update_full_graph_params_if_needed = update
    rig.run()
    return rig.result() | {"after": softnpu.kernel_calls()}


def forward_without_host(mode: str) -> Result:
    """Let nothing pass between host and device during the forward pass and the update."""
    rig = Rig(mode)
    seen = []

    def call(original: Callable[..., Any], options: Result) -> Any:
        with softnpu.no_host():
            hidden = original(**options)
        seen.append(hidden)
        return hidden

    original_update = rig.runner._update_full_graph_params_if_needed

    def update(*args: Any) -> None:
        with softnpu.no_host():
            original_update(*args)
            try:
                seen.pop().sum().item()
            except softnpu.HostReadError:
                return
        raise AssertionError("the hidden states are not known to be on the device")

    _around_model(rig, call)
    rig.runner._update_full_graph_params_if_needed = update
    rig.run()
    return rig.result()


def _around_model(rig: Rig, around: Callable[..., Any]) -> None:
    wrapper: Any = type(rig.runner.model)
    original = wrapper.__call__

    def call(self: Any, **options: Any) -> Any:
        return around(functools.partial(original, self), options)

    wrapper.__call__ = call


def _is_full_graph() -> bool:
    from vllm.forward_context import get_forward_context

    return get_forward_context().cudagraph_runtime_mode.name == "FULL"


def slot_mapping() -> Result:
    """Compare the kernel of the slot mapping with plain Python."""
    from vllm_ascend.worker.block_table import _compute_slot_mapping_kernel as kernel

    block, padding, pairs = 4, -1, []
    for counts in ([1, 1, 1], [5, 1, 7], [3]):
        table = torch.randperm(40, dtype=torch.int32)[: 5 * len(counts)].view(len(counts), 5)
        starts = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        positions = torch.cat([torch.arange(n) + 2 + i for i, n in enumerate(counts)])
        total = sum(counts)
        slots = torch.full((total + 3,), 77, dtype=torch.int32, device="npu")
        with softnpu.no_host():
            kernel[(len(counts) + 1,)](
                total, total + 3, starts, positions, table, table.stride(0), block, slots,
                KV_CACHE_BLOCK_SIZE=block, BLOCKS_PER_KV_BLOCK=1, TOTAL_CP_WORLD_SIZE=1,
                TOTAL_CP_RANK=0, CP_KV_CACHE_INTERLEAVE_SIZE=1, PAD_ID=padding,
                TILE_BLOCK_SIZE=16, BLOCK_TABLE_WINDOW_SIZE=8,
            )  # fmt: skip
        expected = [
            int(table[request, position // block]) * block + int(position) % block
            for request in range(len(counts))
            for position in positions[starts[request] : starts[request + 1]]
        ]
        pairs.append((slots.tolist(), expected + [padding] * 3))
    return {"pairs": pairs}


def greedy_rejection() -> Result:
    """Compare vllm-ascend's Triton kernel with its fall-back in torch."""
    from vllm_ascend.ops.triton import triton_utils
    from vllm_ascend.sample.rejection_sampler import rejection_greedy_sample_pytorch

    from softnpu import triton_hook

    name = "vllm_ascend.ops.triton.reject_sample"
    sys.modules.pop(name, None)
    triton_hook.interpret(name)
    kernels: Any = importlib.import_module(name)
    kernels.get_element = _get_element
    triton_utils._NUM_AICORE, triton_utils._NUM_VECTORCORE = 24, 48
    generator = torch.Generator().manual_seed(0)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    pairs = []
    for case in range(20):
        requests = int(draw(4, 1)) + 1
        drafts = [3] * requests if case % 2 else [max(1, int(n)) for n in draw(4, requests)]
        total, longest = sum(drafts), max(drafts)
        draft = torch.zeros(total, dtype=torch.int32)
        target = draw(2, total) * (torch.rand(total, generator=generator) < 0.4)
        bonus = draw(2, requests, 1).int()
        ends = torch.tensor(drafts, dtype=torch.int32).cumsum(0, dtype=torch.int32)
        plain = torch.full((requests, longest + 1), -1, dtype=torch.int32)
        interpreted = plain.clone()
        rejection_greedy_sample_pytorch(plain, ends, draft, target, bonus, drafts, longest, None)
        grid, block = kernels.cal_grid_and_block_size(requests)
        kernels.rejection_greedy_sample_with_triton(
            interpreted, drafts, ends, draft, target, bonus, None, longest, grid, block
        )
        pairs.append((interpreted.tolist(), plain.tolist()))
    return {"pairs": pairs}


def _get_element(tensor: Any, index: Any) -> Any:
    """Stand for an extension of the Ascend compiler, which the interpreter does not know."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    position = index[0]
    if hasattr(position, "handle"):
        position = np.asarray(position.handle.data).reshape(-1)[0]
    value = np.array([tensor.handle.data.reshape(-1)[int(position)]])
    return tl.core.tensor(TensorHandle(value, tensor.type.scalar), tensor.type.scalar)
