"""Verify: accept each request's frames up to its first stop row, and keep its minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.patches.armed import armed


def accept(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Decide the stop rows of a drafted step directly, for every temperature and seed.

    The head is two columns wide and deterministic, so sampling parameters cannot change the
    answer, and the device's rejection kernels (which fault on some parts) are not needed. A
    draftless step keeps the stock sampler, with the minimum masked into its logits.
    """
    from kstep_shim.frames.min_tokens import neutralize_kstep_min_tokens

    if not armed(runner):
        return wrapped(*args, **kwargs)
    neutralize_kstep_min_tokens(runner.input_batch.sampling_metadata.logitsprocs)
    return _accept(wrapped, runner, *args, **kwargs)


def _accept(
    wrapped: Callable[..., Any], runner: Any, logits: Any, spec_decode_metadata: Any
) -> Any:
    from vllm.v1.outputs import SamplerOutput

    from kstep_shim.frames import limits, verify
    from kstep_shim.frames.tokens import STOP_TOKEN_ID

    if logits is None:
        return wrapped(logits, spec_decode_metadata)
    produced = limits.output_counts(runner.input_batch, runner.requests)
    minimum = limits.minimum_outputs(runner.input_batch, runner.requests)
    if spec_decode_metadata is None:
        for row, (count, least) in enumerate(zip(produced, minimum, strict=True)):
            if count < least:
                logits[row, STOP_TOKEN_ID].fill_(float("-inf"))
        return wrapped(logits, spec_decode_metadata)
    widths = [drafts + 1 for drafts in spec_decode_metadata.num_draft_tokens]
    # A row that is not valid comes out empty, and the drafter stops the step where the accepted
    # ids are on the host anyway: reading the flags here would be a second wait for the device.
    accepted = verify.accept_frames(logits, widths, produced, minimum)
    return SamplerOutput(sampled_token_ids=accepted.token_ids, logprobs_tensors=None)


PATCH = Patch(
    name="verify",
    summary="accept frames up to the first stop row, and keep min_tokens",
    targets=(
        Target(
            distribution="vllm-omni",
            module="vllm_omni.platforms.npu.worker.npu_ar_model_runner",
            qualname="NPUARModelRunner._sample",
            parameters=("self", "logits", "spec_decode_metadata"),
            wrapper=accept,
            platform="npu",
        ),
        Target(
            distribution="vllm-omni",
            module="vllm_omni.worker.gpu_ar_model_runner",
            qualname="GPUARModelRunner._sample",
            parameters=("self", "logits", "spec_decode_metadata"),
            wrapper=accept,
            platform="cuda",
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The stock rejection path masks stops by a count that lags inside a K-frame step.",
    how="Argmax over continue/stop, first stop wins, a stop below min_tokens reads as continue.",
    remove_when="vllm-omni verifies stop rows by itself.",
)
