"""Joining K frame outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_stack import ToyOutput

from kstep_shim.frames.merge import any_finished, merge_frame_outputs


def output(frame: int, deltas: list[list[int]], finished: list[bool]) -> ToyOutput:
    return ToyOutput(
        torch.full((2, 3), float(frame)),
        {
            "codes": {"audio": [torch.tensor(d, dtype=torch.long).reshape(-1, 1) for d in deltas]},
            "meta": {
                "finished": [torch.tensor(flag) for flag in finished],
                "turn_end": [torch.tensor(frame)],
            },
        },
    )


def rows(frame: int, count: int = 2) -> torch.Tensor:
    return torch.tensor([[frame, 10.0 * row] for row in range(count)])


class Store:
    def __init__(self) -> None:
        self.rows: Any = None

    def __call__(self, stop_rows: torch.Tensor) -> None:
        self.rows = stop_rows


def test_nothing_to_merge_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no frame outputs"):
        merge_frame_outputs([], [], Store())


def test_rows_and_outputs_must_pair_up() -> None:
    with pytest.raises(RuntimeError, match="1 stop rows for 2"):
        merge_frame_outputs([output(0, [], []), output(1, [], [])], [rows(0)], Store())


def test_one_output_is_returned_as_it_is() -> None:
    store, only, its_rows = Store(), output(0, [[1], []], [False, True]), rows(0)
    assert merge_frame_outputs([only], [its_rows], store) is only
    assert store.rows is its_rows


def test_codes_flags_rows_and_the_rest() -> None:
    store = Store()
    outputs = [
        output(0, [[5], [7]], [False, False]),
        output(1, [[6], []], [False, True]),
        output(2, [[8], []], [False, False]),
    ]
    merged = merge_frame_outputs(outputs, [rows(0), rows(1), rows(2)], store)
    assert type(merged) is ToyOutput
    payload = merged.multimodal_outputs
    assert [codes.tolist() for codes in payload["codes"]["audio"]] == [[[5], [6], [8]], [[7]]]
    assert all(codes.dtype == torch.long for codes in payload["codes"]["audio"])
    assert [bool(flag) for flag in payload["meta"]["finished"]] == [False, True]
    assert payload["meta"]["turn_end"] == [torch.tensor(2)]
    assert merged.text_hidden_states is outputs[-1].text_hidden_states
    assert store.rows.tolist() == [[0, 0], [1, 0], [2, 0], [0, 10], [1, 10], [2, 10]]
    assert outputs[-1].multimodal_outputs["codes"]["audio"][1].shape == (0, 1)


def test_a_request_that_emits_nothing_gets_an_empty_delta() -> None:
    merged = merge_frame_outputs(
        [output(0, [[]], [False]), output(1, [[]], [False])], [rows(0, 1), rows(1, 1)], Store()
    )
    assert merged.multimodal_outputs["codes"]["audio"][0].shape == (0, 1)


def test_the_first_true_host_flag_is_returned_as_it_is() -> None:
    flags = [torch.tensor(value) for value in (False, True, True, False)]
    assert any_finished(flags) is flags[1]
    assert any_finished(flags[3:] + flags[:1]) is flags[0]


def test_device_flags_are_combined_without_being_read() -> None:
    # Reading a value of a meta tensor raises, as a forbidden device read would.
    flags = [torch.empty(1, dtype=torch.bool, device="meta") for _ in range(3)]
    combined = any_finished([*flags, torch.tensor(False)])
    assert combined.device.type == "meta"
    assert combined.shape == ()
    assert any_finished([*flags, torch.tensor(True)]).device.type == "cpu"
