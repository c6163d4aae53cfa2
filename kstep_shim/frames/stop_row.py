"""The stop-row head: codes are the model's own business, and vLLM sees continue or stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim._logging import LOGGER
from kstep_shim.frames import limits, verify
from kstep_shim.frames.min_tokens import neutralize_kstep_min_tokens
from kstep_shim.frames.tail import FrameTail, StockTail
from kstep_shim.frames.tokens import STOP_TOKEN_ID


class StopRow:
    """Implements `Flavour`."""

    def refusal(self, info: dict[str, Any]) -> str | None:
        """See `Flavour`: the first embedding comes from a code that was sampled before."""
        state = info.get("audio_state")
        if not isinstance(state, dict):
            return "no codec state"
        if state.get("finished"):
            return None
        if int(state.get("step", 0)) <= 0:
            return "no codec frame sampled yet"
        return None

    def tail(self, runner: Any) -> FrameTail:
        """See `Flavour`: on the device where its numbers are the released sampler's."""
        from kstep_shim.frames.chances import chances_problem
        from kstep_shim.frames.codec import Codec
        from kstep_shim.frames.device_tail import DeviceTail
        from kstep_shim.frames.draws import multinomial_problem

        codec = Codec.of(runner.get_model().talker)
        problem: str | None = "an unknown Talker"
        if codec is not None:
            problem = multinomial_problem(codec.is_end) or chances_problem(codec)
        if codec is None or problem is not None:
            LOGGER.warning("kstep_shim: frames are sampled with a host read each: %s", problem)
            return StockTail()
        return DeviceTail(codec, runner.input_batch.max_num_reqs, runner.num_spec_tokens + 1)

    def drafts(self, rows: list[list[int]], drafts: list[list[int]]) -> list[list[int]]:
        """See `Flavour`: *continue*, as they are."""
        return drafts

    def accept(
        self, stock: Callable[..., Any], runner: Any, logits: Any, spec_decode_metadata: Any
    ) -> Any:
        """See `Flavour`: first stop wins, for every temperature and seed.

        The head is two columns wide and deterministic, so sampling parameters cannot change the
        answer, and the device's rejection kernels (which fault on some parts) are not needed. A
        draftless step keeps the stock sampler, with the minimum masked into its logits.
        """
        from vllm.v1.outputs import SamplerOutput

        neutralize_kstep_min_tokens(runner.input_batch.sampling_metadata.logitsprocs)
        if logits is None:
            return stock(logits, spec_decode_metadata)
        produced = limits.output_counts(runner.input_batch, runner.requests)
        minimum = limits.minimum_outputs(runner.input_batch, runner.requests)
        if spec_decode_metadata is None:
            for row, (count, least) in enumerate(zip(produced, minimum, strict=True)):
                if count < least:
                    logits[row, STOP_TOKEN_ID].fill_(float("-inf"))
            return stock(logits, spec_decode_metadata)
        widths = [drafts + 1 for drafts in spec_decode_metadata.num_draft_tokens]
        # A row that is not valid comes out empty, and the drafter stops the step for it.
        accepted = verify.accept_frames(logits, widths, produced, minimum)
        return SamplerOutput(sampled_token_ids=accepted.token_ids, logprobs_tensors=None)

    def stopped(self, runner: Any, token: int) -> bool:
        """See `Flavour`."""
        return token == STOP_TOKEN_ID
