"""The stop row's two ids, and the two vLLM mechanisms that would swallow them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_stack import ToyTalker

from kstep_shim import multi_frame
from kstep_shim.frames.notices import Notices
from kstep_shim.multi_frame import ensure_stop_token_vocab, neutralize_kstep_min_tokens


def runner(vocab_size: int, model: Any = None) -> Any:
    return SimpleNamespace(
        model=model or ToyTalker(), input_batch=SimpleNamespace(vocab_size=vocab_size)
    )


def test_constants() -> None:
    assert (
        multi_frame.CONTINUE_TOKEN_ID,
        multi_frame.STOP_TOKEN_ID,
        multi_frame.STOP_ROW_WIDTH,
    ) == (0, 1, 2)


@pytest.mark.parametrize("logits", [torch.zeros(4, 768), torch.zeros(1, 2), object()])
def test_a_vocabulary_of_nothing_becomes_the_row_s_width(logits: Any) -> None:
    toy = runner(0)
    ensure_stop_token_vocab(toy, logits)
    assert toy.input_batch.vocab_size == 2
    ensure_stop_token_vocab(toy, logits)
    assert toy.input_batch.vocab_size == 2


@pytest.mark.parametrize("reported", [2, 3, 6562])
def test_a_wide_enough_vocabulary_stays(reported: int) -> None:
    toy = runner(reported)
    ensure_stop_token_vocab(toy, torch.zeros(1, 2))
    assert toy.input_batch.vocab_size == reported


def test_no_logits_no_flag_or_no_batch_changes_nothing() -> None:
    toy = runner(0)
    ensure_stop_token_vocab(toy, None)
    other = runner(0, SimpleNamespace(supports_multi_frame_decode=False))
    ensure_stop_token_vocab(other, torch.zeros(1, 2))
    assert toy.input_batch.vocab_size == other.input_batch.vocab_size == 0
    ensure_stop_token_vocab(SimpleNamespace(model=ToyTalker()), torch.zeros(1, 2))


def test_the_change_is_logged_once_per_owner() -> None:
    notices, toy = Notices(), runner(0)
    for _ in range(3):
        toy.input_batch.vocab_size = 0
        ensure_stop_token_vocab(toy, torch.zeros(1, 2), notices)
    assert notices.counts == {"vocab-0": 3}


class AscendMinTokensLogitsProcessor:
    def __init__(self) -> None:
        self.min_toks = {0: (50, [7], {1})}


class LogitBiasLogitsProcessor(AscendMinTokensLogitsProcessor):
    pass


@pytest.mark.parametrize("container", ["list", "vllm", "vllm-partial"])
def test_only_the_minimum_is_forgotten(container: str) -> None:
    minimum, other = AscendMinTokensLogitsProcessor(), LogitBiasLogitsProcessor()
    processors: Any = [minimum, other]
    if container == "vllm":
        processors = SimpleNamespace(argmax_invariant=[other], non_argmax_invariant=[minimum])
    elif container == "vllm-partial":
        processors = SimpleNamespace(non_argmax_invariant=processors)
    neutralize_kstep_min_tokens(processors)
    assert minimum.min_toks == {}
    assert other.min_toks


class BrokenMinTokensLogitsProcessor:
    min_toks = None


@pytest.mark.parametrize("value", [None, [], (), 3, [None], [BrokenMinTokensLogitsProcessor()]])
def test_it_never_raises(value: Any) -> None:
    neutralize_kstep_min_tokens(value)
