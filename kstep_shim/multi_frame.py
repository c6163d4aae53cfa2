"""Several codec frames of MiniCPM-o 4.5's Talker inside one engine step: the documented API.

Nothing here patches anything; see ``kstep_shim.install`` for that. The step is scheduled with K
query positions per request, and `run` executes the same forward K times, writing each sampled
code back as the next frame's input. Importing this module imports torch, and not vLLM.

Examples
--------
>>> from kstep_shim import multi_frame
>>> multi_frame.constant_drafts([[0], [0]], frames=3, num_reqs=2, scheduled_draft_counts=[0, 0])
[[0, 0], [0, 0]]
"""

from __future__ import annotations

from kstep_shim.frames.drafts import constant_drafts
from kstep_shim.frames.gate import applies, drafts_this_step, is_multi_token_decode
from kstep_shim.frames.loop import run
from kstep_shim.frames.min_tokens import neutralize_kstep_min_tokens
from kstep_shim.frames.narrow import begin_narrow_step, narrow_replay_enabled
from kstep_shim.frames.narrow_step import NarrowStep, end_narrow_step
from kstep_shim.frames.tokens import (
    CONTINUE_TOKEN_ID,
    STOP_ROW_WIDTH,
    STOP_TOKEN_ID,
    ensure_stop_token_vocab,
)

__all__ = [
    "CONTINUE_TOKEN_ID",
    "STOP_ROW_WIDTH",
    "STOP_TOKEN_ID",
    "NarrowStep",
    "applies",
    "begin_narrow_step",
    "constant_drafts",
    "drafts_this_step",
    "end_narrow_step",
    "ensure_stop_token_vocab",
    "is_multi_token_decode",
    "narrow_replay_enabled",
    "neutralize_kstep_min_tokens",
    "run",
]
