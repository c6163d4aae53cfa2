"""Input batch: size the Talker's vocabulary by the stop row instead of 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Head, Patch, Side, Target


def size_by_stop_row(wrapped: Callable[..., Any], batch: Any, args: Any, kwargs: Any) -> None:
    """Build the batch, then give a vocabulary of 0 the width of the row that the model emits.

    After construction, because the position of ``vocab_size`` differs between the classes; the
    constructors only store it.
    """
    from kstep_shim.frames.tokens import STOP_ROW_WIDTH

    wrapped(*args, **kwargs)
    if batch.vocab_size == 0:
        batch.vocab_size = STOP_ROW_WIDTH


PATCH = Patch(
    name="input_batch",
    summary="give the Talker's input batch the stop row's width as vocabulary",
    targets=(
        Target(
            distribution="vllm",
            module="vllm.v1.worker.gpu_input_batch",
            qualname="InputBatch.__init__",
            parameters=(
                "self",
                "max_num_reqs",
                "max_model_len",
                "max_num_batched_tokens",
                "device",
                "vocab_size",
                "block_sizes",
                "kernel_block_sizes",
                "max_num_blocks_per_req",
                "logitsprocs",
                "logitsprocs_need_output_token_ids",
                "num_spec_tokens",
                "is_pooling_model",
                "cp_kv_cache_interleave_size",
                "reasoning_config",
                "slot_mapping_modes",
            ),
            wrapper=size_by_stop_row,
            head=Head.STOP_ROW,
        ),
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.npu_input_batch",
            qualname="NPUInputBatch.__init__",
            parameters=(
                "self",
                "max_num_reqs",
                "max_model_len",
                "max_num_batched_tokens",
                "device",
                "pin_memory",
                "vocab_size",
                "block_sizes",
                "kernel_block_sizes",
                "max_num_blocks_per_req",
                "logitsprocs",
                "logitsprocs_need_output_token_ids",
                "is_spec_decode",
                "is_pooling_model",
                "num_speculative_tokens",
                "cp_kv_cache_interleave_size",
                "kv_cache_groups",
            ),
            wrapper=size_by_stop_row,
            head=Head.STOP_ROW,
            platform="npu",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="Every reader of vocab_size must see two ids; the batch is built twice, from 0 each time.",
    how="Raises the attribute after construction, in both classes and so in both places.",
    remove_when="the Talker's configuration reports the width of its head.",
)
