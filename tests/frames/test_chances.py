"""Which codes may follow, and with what chances, against the released module's own filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kstep_shim.frames.chances import chances_of, chances_problem, one_after_another
from kstep_shim.frames.codec import Codec


def codec_of(talker_class: Any, vocabulary: int, top_k: int | None, top_p: float | None) -> Codec:
    talker = talker_class()
    talker._codec_top_k, talker._codec_top_p = top_k, top_p
    codec = Codec.of(talker)
    assert codec is not None
    is_end = torch.arange(vocabulary)[None] == vocabulary - 1
    return replace(codec, vocabulary=vocabulary, is_end=is_end)


def released(codec: Codec, scores: torch.Tensor) -> torch.Tensor:
    top_k, top_p = codec.talker._codec_top_k, codec.talker._codec_top_p
    rows = [
        codec.top_k_top_p(row[None], top_k=top_k, top_p=top_p, min_tokens_to_keep=3)
        for row in scores
    ]
    return torch.softmax(torch.cat(rows), dim=-1)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    vocabulary=st.sampled_from([4, 13, 200, 6562]),
    spread=st.sampled_from([0.0, 0.01, 0.5, 3.0, 30.0]),
    step=st.sampled_from([0.0, 0.125, 1.0]),
    masked=st.integers(0, 3),
    top_k=st.sampled_from([None, 0, 1, 25, 100]),
    top_p=st.sampled_from([None, 0.0, 0.05, 0.85, 0.999, 1.0]),
)
def test_chances_are_those_of_the_released_filter(
    talker_class: Any,
    seed: int,
    vocabulary: int,
    spread: float,
    step: float,
    masked: int,
    top_k: int | None,
    top_p: float | None,
) -> None:
    codec = codec_of(talker_class, vocabulary, top_k, top_p)
    scores = torch.randn(2, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread
    if step:
        scores = (scores / step).round() * step  # ties
    scores[:, vocabulary - masked :] = float("-inf")
    expected = released(codec, scores)
    assert torch.equal(chances_of(codec, scores, one_after_another), expected)


def test_the_check_at_start_up_passes(talker_class: Any) -> None:
    assert chances_problem(codec_of(talker_class, 6562, 25, 0.85)) is None


def test_the_check_at_start_up_notices_another_filter(talker_class: Any) -> None:
    codec = codec_of(talker_class, 6562, 25, 0.85)

    def other(scores: Any, *, top_k: int, **options: Any) -> Any:
        return codec.top_k_top_p(scores, top_k=top_k - 1, **options)

    found = chances_problem(replace(codec, top_k_top_p=other))
    assert found == "top-p and top-k leave other codes on this device"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_has_no_chance(talker_class: Any, bad: float) -> None:
    codec = codec_of(talker_class, 200, 25, 0.85)
    scores = torch.zeros(2, 200)
    scores[0, 7] = bad
    chances = chances_of(codec, scores, one_after_another)
    assert not (chances[0] > 0).any()
    assert chances[1].sum() > 0
