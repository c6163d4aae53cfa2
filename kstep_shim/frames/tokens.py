"""The two token ids of the Talker's stop row, and the vocabulary width that lets them through."""

from __future__ import annotations

from typing import Any

from kstep_shim.frames.contract import is_codec_head, supports_multi_frame
from kstep_shim.frames.notices import Notices, process_notices

#: Column of a stop row that means "this request goes on".
CONTINUE_TOKEN_ID = 0
#: Column of a stop row that means "this request ended with this frame".
STOP_TOKEN_ID = 1
#: Width of the row that the Talker's vLLM-level head emits: continue and stop.
STOP_ROW_WIDTH = 2


def ensure_stop_token_vocab(runner: Any, logits: Any, notices: Notices | None = None) -> None:
    """Make the input batch report the width of the stop row instead of no vocabulary at all.

    The Talker's codec configuration names no vocabulary, so the batch is built with a size of 0,
    and vLLM's ``RejectionSampler.parse_output`` then drops every id of a multi-token step (it
    keeps an id only below that size). The width set here is always `STOP_ROW_WIDTH`: a hidden
    width would pass the filter too, but would turn the batch's "no top-k" mark into an active
    top-k. A codec head is left alone for the same reason.

    Parameters
    ----------
    runner : Any
        Model runner with ``model`` and ``input_batch``.
    logits : Any
        Anything but ``None`` says that the step has a head; its shape is never read.
    notices : Notices, optional
        Who logs the change; the process-wide record by default.
    """
    model = getattr(runner, "model", None)
    if logits is None or not supports_multi_frame(model) or is_codec_head(model):
        return
    batch = getattr(runner, "input_batch", None)
    if batch is None:
        return
    reported = int(getattr(batch, "vocab_size", 0) or 0)
    if reported >= STOP_ROW_WIDTH:
        return
    batch.vocab_size = STOP_ROW_WIDTH
    (notices or process_notices).notify(
        f"vocab-{reported}",
        f"stage 1 input batch reported a vocabulary of {reported}; set to {STOP_ROW_WIDTH}, "
        "the width of the continue/stop row",
        level=20,
    )
