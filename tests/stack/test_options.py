"""Every option that a request can bring: codes as at K=1, and no crash."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support import option_cases
from support.option_cases import Answered
from support.stages import StageError, Stages

from kstep_shim.demo.outcome import differences

FRAMES = 4
#: Asks for rows of the head: the batch runs single-frame. By case: entries per token's logprobs.
ROWS = {
    "logprobs 0": ({"logprobs": 0}, 1),
    "logprobs 1": ({"logprobs": 1}, 2),
    "logprobs 2": ({"logprobs": 2}, 3),
    "logprobs all": ({"logprobs": -1}, 3),
    "prompt 0": ({"prompt_logprobs": 0}, 0),
    "prompt 1": ({"prompt_logprobs": 1}, 0),
    "prompt all": ({"prompt_logprobs": -1}, 0),
    "ids": ({"logprob_token_ids": [1]}, 2),
    "ids and logprobs": ({"logprob_token_ids": [0, 1], "logprobs": 1}, 3),
}
#: Crashes the released stage: as many as there are, or nothing.
BEYOND_THE_ROW = {
    "logprobs 5": ({"logprobs": 5}, 3),
    "prompt 5": ({"prompt_logprobs": 5}, 0),
    "ids 5": ({"logprob_token_ids": [5]}, 0),
    "ids 5 and logprobs": ({"logprob_token_ids": [5], "logprobs": 1}, 2),
}
#: Changes nothing on a head that has decided already.
HARMLESS = {
    "min_p": {"min_p": 0.3, "temperature": 0.7},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    "truncation": {"temperature": 1.0, "top_k": 1, "top_p": 0.5, "seed": 3},
    "thinking": {"thinking_token_budget": 3},
    "eos": {"_eos_token_id": 1, "ignore_eos": True},
    "extra": {"extra_args": {"a": 1}, "skip_reading_prefix_cache": True},
}
#: What each option of the released class comes to on stage 1.
KNOWN = {
    "rows of the head": "logprobs prompt_logprobs logprob_token_ids structured_outputs",
    "ids of a vocabulary": "logit_bias allowed_token_ids bad_words _bad_words_token_ids",
    "ends": "stop_token_ids _all_stop_token_ids _eos_token_id ignore_eos min_tokens max_tokens "
    "repetition_detection",
    "sampling": "presence_penalty frequency_penalty repetition_penalty temperature top_p top_k "
    "min_p seed thinking_token_budget extra_args",
    "before or behind the engine": "n stop flat_logprobs detokenize skip_special_tokens "
    "spaces_between_special_tokens include_stop_str_in_output output_kind skip_clone "
    "output_text_buffer_length routed_experts_prompt_start skip_reading_prefix_cache",
}


def test_field_report_11_no_option_is_unknown(stages: Stages) -> None:
    known = [name for names in KNOWN.values() for name in names.split()]
    assert sorted(stages.call(option_cases.option_names)) == sorted(known)


@pytest.fixture(scope="module")
def stock(stages: Stages) -> dict[str, Answered]:
    cases = {name: options for name, (options, _) in ROWS.items()} | HARMLESS | {"plain": {}}
    return stages.call(partial(option_cases.serve, 1, cases))


@pytest.fixture(scope="module")
def answered(stages: Stages) -> dict[str, Answered]:
    cases = {name: options for name, (options, _) in {**ROWS, **BEYOND_THE_ROW}.items()}
    return stages.call(partial(option_cases.serve, FRAMES, cases | HARMLESS))


@pytest.mark.parametrize("name", [*ROWS, *HARMLESS])
def test_field_report_11_codes_are_those_of_one_frame(
    stock: dict[str, Answered], answered: dict[str, Answered], name: str
) -> None:
    assert differences(stock[name].outcome, answered[name].outcome) == []


@pytest.mark.parametrize(("name", "entries"), [(n, e) for n, (_, e) in ROWS.items()])
def test_field_report_11_one_row_of_logprobs_for_each_token(
    answered: dict[str, Answered], name: str, entries: int
) -> None:
    found = answered[name]
    asks = found.outcome.requests[f"{name}-a"]
    assert found.widths == ([entries] * len(asks.tokens) if entries else [])
    beside = [step for step in found.outcome.steps if f"{name}-a" in step.widths]
    assert not [step for step in beside if step.drafts]
    assert [step for step in found.outcome.steps if step.drafts]


@pytest.mark.parametrize(("name", "entries"), [(n, e) for n, (_, e) in BEYOND_THE_ROW.items()])
def test_field_report_11_what_the_row_does_not_have_is_left_out(
    stock: dict[str, Answered], answered: dict[str, Answered], name: str, entries: int
) -> None:
    assert spoken(answered[name], name) == spoken(stock["plain"], "plain")
    asks = answered[name].outcome.requests[f"{name}-a"]
    assert answered[name].widths == ([entries] * len(asks.tokens) if entries else [])


def spoken(found: Answered, name: str) -> list[Any]:
    requests = (found.outcome.requests[f"{name}-{letter}"] for letter in "ab")
    return [(r.codes, r.tokens, r.finish_reason, r.stop_reason, r.draws) for r in requests]


@pytest.mark.long
@pytest.mark.parametrize("name", BEYOND_THE_ROW)
def test_field_report_11_the_stock_stack_crashes_on_it(stages: Stages, name: str) -> None:
    options, _ = BEYOND_THE_ROW[name]
    with pytest.raises(StageError, match=r"out of range|out of bounds"):
        stages.call(partial(option_cases.serve, 1, {name: options}))


@pytest.mark.parametrize("name", HARMLESS)
def test_field_report_11_other_options_keep_the_batch_wide(
    answered: dict[str, Answered], name: str
) -> None:
    steps = answered[name].outcome.steps
    assert [step for step in steps if f"{name}-a" in step.widths and step.drafts]
