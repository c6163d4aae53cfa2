"""Bookkeeping: let a K-frame step's codes pass where the batch reports no vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Head, Patch, Side, Target
from kstep_shim.patches.armed import armed


def keep_codes(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Give the batch the codec's vocabulary for the time that the sampled ids are read.

    Not for longer: with a vocabulary the batch would honour a request's top-k, which one frame
    per step ignores.
    """
    if not armed(runner):
        return wrapped(*args, **kwargs)
    batch = runner.input_batch
    reported = batch.vocab_size
    batch.vocab_size = max(reported, int(runner.get_model().talker._num_audio_tokens))
    try:
        return wrapped(*args, **kwargs)
    finally:
        batch.vocab_size = reported


_PARAMETERS = (
    "self",
    "scheduler_output",
    "sampler_output",
    "logits",
    "hidden_states",
    "num_scheduled_tokens",
)

PATCH = Patch(
    name="bookkeeping",
    summary="keep the codes of a K-frame step although the head reports no vocabulary",
    targets=(
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.model_runner_v1",
            qualname="NPUModelRunner._bookkeeping_sync",
            parameters=(*_PARAMETERS, "spec_decode_metadata"),
            wrapper=keep_codes,
            platform="npu",
            head=Head.CODEC,
        ),
        Target(
            distribution="vllm",
            module="vllm.v1.worker.gpu_model_runner",
            qualname="GPUModelRunner._bookkeeping_sync",
            parameters=_PARAMETERS,
            wrapper=keep_codes,
            platform="cuda",
            head=Head.CODEC,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="Ids of a drafted step are kept below the vocabulary only, and the codec head reports 0.",
    how="Raises the batch's vocabulary around the one method that reads the ids.",
    remove_when="the Talker's configuration reports the width of its head.",
)
