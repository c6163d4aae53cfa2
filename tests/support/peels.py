"""Obstacles of the unmodified stack at K > 1, removed one at a time, to show what lies behind."""

from __future__ import annotations


def repeat_stop_rows() -> None:
    """Give the rejection sampler one stop row per position instead of one per request."""
    import torch
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner

    sample = NPUARModelRunner._sample

    def peeled(runner, logits, metadata):
        if metadata is not None:
            widths = torch.tensor([count + 1 for count in metadata.num_draft_tokens])
            if logits.shape[0] != int(widths.sum()):
                logits = logits.repeat_interleave(widths, 0)
        return sample(runner, logits, metadata)

    NPUARModelRunner._sample = peeled


def repeat_stop_rows_with_constant_drafts() -> None:
    """Also draft *continue* for every request, where the n-gram proposer drafts now and then."""
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    repeat_stop_rows()

    def peeled(runner, *args, **kwargs):
        return [[0] * runner.num_spec_tokens for _ in range(runner.input_batch.num_reqs)]

    NPUModelRunner.propose_draft_token_ids = peeled


def repeat_stop_rows_and_size_vocabulary() -> None:
    """Also let the accepted ids through, by sizing the vocabulary by the stop row."""
    from vllm_ascend.worker.npu_input_batch import NPUInputBatch

    repeat_stop_rows_with_constant_drafts()
    build = NPUInputBatch.__init__

    def peeled(batch, *args, **kwargs):
        build(batch, *args, **kwargs)
        batch.vocab_size = 2

    NPUInputBatch.__init__ = peeled
