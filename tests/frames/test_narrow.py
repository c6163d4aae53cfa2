"""The one-query graph: declining, selecting, restoring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_stack import ToyTalker

from kstep_shim.frames.notices import Notices
from kstep_shim.multi_frame import (
    NarrowStep,
    begin_narrow_step,
    end_narrow_step,
    narrow_replay_enabled,
)

ROWS, FRAMES = 2, 3


class Step:
    """A runner with a captured graph, a forward context and a step of two requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SOC_VERSION", "ASCEND_SOC_VERSION", "KSTEP_SHIM_NARROW"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(torch, "npu", None, raising=False)
        # The graph's slots alias the step's, its lengths are a buffer of their own.
        self.slots = torch.arange(8) + 50
        self.starts = torch.tensor([0, 3, 6])
        self.graph: Any = SimpleNamespace(
            slot_mapping=self.slots,
            seq_lens=torch.tensor([1, 1, 1], dtype=torch.int32),
            context={"cudagraph_runtime_mode": "FULL", "batch_descriptor": "one query"},
            constants=[(self.starts, torch.tensor([0, 1, 2]))],
            before_replay=lambda frame: self.replayed.append(frame),
            after_step=lambda: self.replayed.append("after"),
        )
        self.replayed: list[object] = []
        self.asked: list[tuple[int, int]] = []
        metadata = SimpleNamespace(
            slot_mapping=self.slots, seq_lens=torch.tensor([10, 20], dtype=torch.int32)
        )
        self.runner: Any = SimpleNamespace(
            model=ToyTalker(), num_spec_tokens=FRAMES - 1, captured_one_query=self.captured
        )
        self.context: Any = SimpleNamespace(
            attn_metadata={"layer.0": metadata, "layer.1": metadata},
            cudagraph_runtime_mode="PIECEWISE",
            batch_descriptor="wide",
        )
        self.arguments: dict[str, Any] = {
            "frames": FRAMES,
            "positions": torch.arange(8),
            "inputs_embeds": torch.arange(16.0).view(8, 2),
            "spans": [(0, 3), (3, 6)],
        }
        self.notices = Notices()

    def captured(self, rows: int, frames: int) -> Any:
        self.asked.append((rows, frames))
        return self.graph

    def begin(self, **changes: Any) -> NarrowStep | None:
        return begin_narrow_step(
            runner=self.runner,
            forward_context=self.context,
            notices=self.notices,
            **{**self.arguments, **changes},
        )

    def snapshot(self) -> list[Any]:
        buffers = (
            self.starts,
            self.slots,
            self.graph.seq_lens,
            self.arguments["positions"],
            self.arguments["inputs_embeds"],
        )
        return [buffer.tolist() for buffer in buffers] + [
            self.context.cudagraph_runtime_mode,
            self.context.batch_descriptor,
        ]


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(monkeypatch)


def test_tables_of_a_successful_begin(step: Step) -> None:
    narrow = step.begin()
    assert narrow is not None
    assert (narrow.rows, narrow.frames, narrow.spans) == (2, 3, [(0, 3), (3, 6)])
    assert narrow.step_slots.tolist() == [[50, 51, 52], [53, 54, 55]]
    assert narrow.step_positions.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert narrow.step_seq_lens.tolist() == [[8, 9, 10], [18, 19, 20]]
    assert narrow.step_seq_lens.dtype == torch.int32
    assert narrow.inputs_embeds is step.arguments["inputs_embeds"]
    assert narrow.positions is step.arguments["positions"]
    assert narrow.slot_mapping is step.slots
    assert narrow.seq_lens is step.graph.seq_lens
    assert (step.context.cudagraph_runtime_mode, step.context.batch_descriptor) == (
        "FULL",
        "one query",
    )
    assert step.asked == [(2, 3)]


def test_begin_moves_no_buffer(step: Step) -> None:
    before = step.snapshot()[1:5]
    step.begin()
    assert step.snapshot()[1:5] == before
    assert step.starts.tolist() == [0, 1, 2]


def test_select_changes_the_first_rows_only(step: Step) -> None:
    narrow = step.begin()
    assert narrow is not None
    for frame in range(FRAMES):
        narrow.select(frame)
        assert step.slots.tolist() == [50 + frame, 53 + frame, 52, 53, 54, 55, 56, 57]
        assert step.arguments["positions"].tolist() == [frame, 3 + frame, 2, 3, 4, 5, 6, 7]
        assert step.graph.seq_lens.tolist() == [8 + frame, 18 + frame, 1]
    assert step.replayed == [0, 1, 2]


def test_end_leaves_what_a_wide_step_leaves(step: Step) -> None:
    before = step.snapshot()
    narrow = step.begin()
    assert narrow is not None
    embeds = step.arguments["inputs_embeds"]
    for frame in range(FRAMES):
        narrow.select(frame)
        embeds[:ROWS] = torch.tensor([[100.0 + frame], [200.0 + frame]])
        narrow.keep_embeddings(frame)
    end_narrow_step(step.context, narrow)
    after = step.snapshot()
    assert after[:4] == before[:4]
    assert after[5:] == before[5:]
    assert embeds[:, 0].tolist() == [100, 101, 102, 200, 201, 202, 12, 14]
    assert step.replayed == [0, 1, 2, "after"]


def test_end_after_an_exception_restores_too(step: Step) -> None:
    before = step.snapshot()
    narrow = step.begin()
    assert narrow is not None
    narrow.select(0)
    first_rows = step.arguments["inputs_embeds"]
    first_rows[1] = first_rows[3]
    narrow.keep_embeddings(0)
    narrow.select(1)
    end_narrow_step(step.context, narrow)
    after = step.snapshot()
    assert after[:4] == before[:4]
    assert after[5:] == before[5:]
    assert first_rows[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_end_twice_and_end_of_nothing(step: Step) -> None:
    end_narrow_step(step.context, None)
    narrow = step.begin()
    assert narrow is not None
    end_narrow_step(step.context, narrow)
    step.slots.zero_()
    step.context.batch_descriptor = "next step"
    end_narrow_step(step.context, narrow)
    assert not step.slots.any()
    assert step.context.batch_descriptor == "next step"
    assert step.replayed == ["after"]


def _set(path: str, value: Any) -> Any:
    def change(step: Step) -> None:
        owner: Any = step
        *parents, name = path.split(".")
        for parent in parents:
            owner = owner[parent] if isinstance(owner, dict) else getattr(owner, parent)
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)

    return change


def _metadata(**changes: Any) -> Any:
    def change(step: Step) -> None:
        metadata = next(iter(step.context.attn_metadata.values()))
        for name, value in changes.items():
            setattr(metadata, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set("runner.model", SimpleNamespace()), "disabled"),
        (_set("runner.num_spec_tokens", 0), "disabled"),
        (_set("runner.captured_one_query", None), "no one-query graph captured for 2"),
        (_set("graph", None), "no one-query graph captured for 2"),
        (_set("arguments.spans", []), "no rows"),
        (_set("arguments.frames", 1), "single frame"),
        (_set("arguments.spans", [(0, 3), (4, 7)]), "uniform"),
        (_set("arguments.spans", [(0, 3), (3, 5)]), "uniform"),
        (_set("arguments.positions", None), "no positions"),
        (_set("arguments.positions", torch.arange(5)), "too few positions"),
        (_set("arguments.positions", torch.zeros(8, 2)), "dimension"),
        (_set("arguments.inputs_embeds", None), "no input embeddings"),
        (_set("arguments.inputs_embeds", torch.zeros(5, 2)), "too few input embeddings"),
        (_set("context.attn_metadata", None), "no attention metadata"),
        (_set("context.attn_metadata", []), "no attention metadata"),
        (_set("context.attn_metadata", {0: object(), 1: object()}), "different metadata"),
        (_metadata(slot_mapping=None), "no slot mapping"),
        (_metadata(slot_mapping=torch.arange(5)), "too few slot mapping"),
        (_metadata(seq_lens=None), "no sequence lengths"),
        (_metadata(seq_lens=[10, 20]), "no sequence lengths"),
        (_metadata(seq_lens=torch.zeros(1)), "too few sequence lengths"),
        (_set("graph.seq_lens", torch.zeros(1)), "too few graph sequence lengths"),
        (_set("graph.slot_mapping", None), "no graph slot mapping"),
        (_set("graph.context", {"no_such_attribute": 1}), "no_such_attribute"),
        (_set("runner.captured_one_query", lambda rows, frames: 1 // 0), "ZeroDivisionError"),
    ],
)
def test_a_missing_precondition_declines_and_touches_nothing(
    step: Step, change: Any, reason: str
) -> None:
    change(step)
    mode = step.context.cudagraph_runtime_mode, step.context.batch_descriptor
    for _ in range(2):
        assert step.begin() is None
    assert reason in (step.notices.last_message or "")
    assert list(step.notices.counts.values()) == [2]
    assert (step.context.cudagraph_runtime_mode, step.context.batch_descriptor) == mode


def test_a_half_overridden_context_is_put_back(step: Step) -> None:
    step.graph.context = {"batch_descriptor": "one query", "no_such_attribute": 1}
    assert step.begin() is None
    assert step.context.batch_descriptor == "wide"


@pytest.mark.parametrize("part", ["Ascend910_9382", "ascend910c", "Ascend910B3"])
def test_a_part_whose_capture_faults_is_off_unless_overridden(
    step: Step, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setenv("SOC_VERSION", part)
    assert not narrow_replay_enabled(step.runner)
    assert step.begin() is None
    monkeypatch.setenv("KSTEP_SHIM_NARROW", "on")
    assert narrow_replay_enabled(step.runner)
    assert step.begin() is not None


def test_narrow_can_be_switched_off(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    assert narrow_replay_enabled(step.runner)
    monkeypatch.setenv("KSTEP_SHIM_NARROW", "off")
    assert not narrow_replay_enabled(step.runner)
