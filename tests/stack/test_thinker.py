"""Stage 0 with drafts, a grammar and logprobs of its own: the shim leaves every step as it was."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support import thinker
from support.stages import StageError, Stages

# Two stages of a model with text: tests of the overlays and of the gates are the quick ones.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def stock(stages: Stages) -> list[dict[str, Any]]:
    return stages.call(partial(thinker.trace, False))


@pytest.mark.parametrize(
    "prepare", [pytest.param((), marks=pytest.mark.long), (thinker.share_with_the_talker,)], ids=len
)
def test_field_report_11_stage_zero_speaks_as_without_the_shim(
    stages: Stages, stock: list[dict[str, Any]], prepare: Any
) -> None:
    assert stages.call(partial(thinker.trace, True, *prepare)) == stock


def test_field_report_11_what_stage_zero_was_asked(stock: list[dict[str, Any]]) -> None:
    said = [one for step in stock for one in step["said"]]
    assert {one[0] for one in said if one[3] != "None"} == {"t0", "t1", "t2", "t3"}
    accepted = {len(one[1]) for one in said if one[1]}
    assert accepted == {1, 2, 3, 4}
    assert {len(drafts) for step in stock for drafts in step["drafts"].values()} == {1, 2, 3}
    assert all(len(one[2][0]) == len(one[1]) for one in said if one[0] in ("t1", "t2"))
    read_again = [step for step in stock[1:] if min(step["widths"].values(), default=0) > 13]
    assert len(read_again) == 1


def test_a_drafter_that_took_stage_zero_for_the_talker_would_show(
    stages: Stages, stock: list[dict[str, Any]]
) -> None:
    plants = (thinker.share_with_the_talker, thinker.draft_constants)
    assert stages.call(partial(thinker.trace, True, *plants)) != stock


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (thinker.verify_stop_rows, r"stop rows of shape \[\d+, 128\], not \[n, 2\]"),
        (thinker.size_by_stop_row, "assert num_tokens_scheduled > 0"),
    ],
)
def test_a_patch_that_took_stage_zero_for_the_talker_would_fail(
    stages: Stages, plant: Any, words: str
) -> None:
    with pytest.raises(StageError, match=words):
        stages.call(partial(thinker.trace, True, thinker.share_with_the_talker, plant))
