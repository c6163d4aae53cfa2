"""The logits processors that vLLM leaves out of an engine with drafts."""

from __future__ import annotations

from typing import Any


def offer_every_processor(runner: Any) -> None:
    """Let requests to this new runner use ``logit_bias`` and ``min_p``, as without drafts.

    vLLM keeps them from its rejection sampler, which a codec head does not use: every frame is
    sampled as a step of its own.
    """
    from vllm.utils.platform_utils import is_pin_memory_available
    from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, LogitsProcessors

    pinned, batch = is_pin_memory_available(), runner.input_batch
    batch.logitsprocs = LogitsProcessors(
        make(runner.vllm_config, runner.device, pinned) for make in BUILTIN_LOGITS_PROCESSORS
    )
    batch.sampling_metadata = batch._make_sampling_metadata()
