"""What the hand-over tells the sender of each token, on a request that has changed since."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kstep_shim.frames.hand_over import book_tokens
from kstep_shim.patches.hand_over import send_by_token


def request(**members: Any) -> Any:
    values: dict[str, Any] = {
        "status": "RUNNING",
        "num_computed_tokens": 24,
        "num_output_tokens": 10,
        "max_tokens": 100,
        "is_finished": lambda: False,
    }
    return SimpleNamespace(**{**values, **members})


def rows_sent(one: Any, payload: dict[str, Any]) -> list[list[float]]:
    """The hidden rows that go out with each token."""
    rows: list[list[float]] = []

    def save(part: Any, *_: Any) -> None:
        rows.append(part["hidden"].flatten().tolist())

    send_by_token(save, None, (payload, one, False), {})
    return rows


@pytest.mark.parametrize(
    ("tokens", "expected"), [(1, [[0]]), (2, [[0], [1]]), (4, [[0], [1], [2], [3]])]
)
def test_each_token_of_a_wide_step_takes_its_own_hidden_row(
    tokens: int, expected: list[list[float]]
) -> None:
    one = request()
    book_tokens(one, 4, [0] * tokens, drafted=True)
    one.num_output_tokens += tokens
    codes = torch.arange(tokens)[:, None]
    assert rows_sent(one, {"codes.audio": codes, "hidden": torch.arange(4.0)[:, None]}) == expected


def test_a_prompt_keeps_all_its_hidden_rows() -> None:
    one = request()
    book_tokens(one, 4, [0], drafted=False)
    one.num_output_tokens += 1
    payload = {"codes.audio": torch.zeros(1, 1), "hidden": torch.arange(4.0)[:, None]}
    assert rows_sent(one, payload) == [[0, 1, 2, 3]]


def sent(one: Any, payload: dict[str, Any]) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def save(part: Any, proxy: Any, is_segment_finished: bool) -> None:
        codes = part["codes.audio"].flatten().tolist()
        calls.append((codes, proxy.num_computed_tokens, proxy.is_finished(), is_segment_finished))

    send_by_token(save, None, (payload, one, True), {})
    return calls


def test_a_session_reset_before_the_hand_over_keeps_its_old_tokens() -> None:
    one = request()
    book_tokens(one, 4, [0, 0, 0, 1], drafted=True)
    # The unit's end has already put the next unit's prompt in place.
    one.num_computed_tokens, one.num_output_tokens = 0, 0
    codes = torch.tensor([[7], [8], [9]])
    assert sent(one, {"codes.audio": codes}) == [
        ([7], 21, False, False),
        ([8], 22, False, False),
        ([9], 23, False, False),
        ([], 0, False, True),
    ]


def test_ids_behind_the_limit_are_not_counted_as_accepted() -> None:
    sampled = [0, 0, 0, 1]
    book_tokens(request(max_tokens=12), 4, sampled, drafted=True)
    assert sampled == [0, 0]


def test_a_step_always_keeps_its_first_id() -> None:
    sampled = [0]
    book_tokens(request(max_tokens=10), 1, sampled, drafted=False)
    assert sampled == [0]
