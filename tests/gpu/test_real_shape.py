"""K frames per step on a GPU, with the Talker's real shape, against the unmodified stack."""

from __future__ import annotations

from typing import Any

import pytest
from support.real_talker import checkpoint

SLEEP, MANY = ("--sleep",), ("--sleep", "--requests", "2000")


def options(frames: int) -> tuple[str, ...]:
    return MANY if frames == 8 else ()


@pytest.mark.parametrize("frames", [2, 4, 8, 16])
def test_every_id_and_ending_is_that_of_one_frame_per_step(stages: Any, frames: int) -> None:
    expected = stages.facts(1)["streams"]
    found = stages.facts(frames, *options(frames))
    assert found["streams"] == expected
    lengths = {len(stream["codes"]) for stream in expected.values()}
    assert len(lengths) > 5
    assert min(len(set(stream["codes"])) for stream in expected.values()) > 30, "flat logits"
    counters = found["counters"]
    assert counters["steps_engaged"] == counters["steps_narrow"] > 0
    assert not counters.get("backstop_reached")


def test_field_report_22_graphs_after_sleep_and_wake(stages: Any) -> None:
    found = stages.facts(8, *MANY)
    assert found["after sleep"] == found["streams"]


def test_2000_requests_leave_no_memory_behind(stages: Any) -> None:
    before, after = stages.facts(8, *MANY)["memory"]
    for kind in ("device", "host"):
        assert after[kind] <= 1.02 * before[kind], kind


def test_nothing_waits_for_the_device_inside_the_loop(stages: Any) -> None:
    done = stages.run("benchmarks/no_host_read.py", "--model", checkpoint())
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "a planted read is noticed" in done.stdout
