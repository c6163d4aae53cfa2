"""``kstep-shim bench``: what its figures are made of, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kstep_shim.bench import command
from kstep_shim.bench.results import plot, rows, summary
from kstep_shim.cli import main


def result(k: int, ms: float, codes: list[int], device: dict[str, float]) -> dict[str, Any]:
    facts = {
        "ms_per_frame": ms,
        "step_ms": ms * k,
        "step_ms_max": ms * k + 1,
        "first_window_ms": 30.0,
        "device_ms": device,
        "codes": {"b1-0": codes},
    }
    return {
        "k": k,
        "device": "a device",
        "versions": {"torch": "2"},
        "counters": {},
        "batches": {"1": facts},
    }


K1 = result(1, 3.0, [5, 6], {"one query": 0.8})
K8 = result(8, 1.2, [5, 6], {"one query": 0.8, "sample": 0.2})


def test_figures() -> None:
    before, after = rows([K1, K8])
    assert (before.times_faster, before.device_ms, before.over_floor) == (1.0, None, None)
    assert (after.times_faster, after.device_ms, after.host_ms) == (2.5, 1.0, 0.2)
    assert (after.over_floor, after.ids_equal, after.streams) == (1.2, 1, 1)


def test_streams_without_ids_are_not_equal() -> None:
    silent = [result(1, 3.0, [], {}), result(8, 1.2, [], {})]
    assert summary(silent)["identical"] is False


@pytest.mark.parametrize(("codes", "code"), [([5, 6], 0), ([5, 7], 1)])
def test_an_id_that_differs_is_a_failed_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], codes: list[int], code: int
) -> None:
    measured = [K1, result(8, 1.2, codes, {})]
    monkeypatch.setattr(command, "_measure", lambda *_: measured)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: name)
    assert main(["bench", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["identical"] is (code == 0)


def test_the_table_is_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_measure", lambda *_: [K1, K8])
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: name)
    assert main(["bench"]) == 0
    shown = capsys.readouterr().out
    assert "a device" in shown
    assert "2.50" in shown
    assert "1 of 1" in shown


def test_a_missing_stack_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "--model", "somewhere"]) == 1
    assert "the bench needs torch, vllm, vllm_omni" in capsys.readouterr().err


@pytest.mark.stack
def test_the_plot(tmp_path: Path) -> None:
    plot(summary([K1, K8]), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.stack
def test_on_the_soft_npu_the_ids_are_those_of_one_frame_per_step(tmp_path: Path) -> None:
    arguments = ["-k", "4", "--batches", "2", "--frames", "14", "--rounds", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "kstep_shim", "bench", *arguments],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout)
    assert [(row["k"], row["ids_equal"]) for row in facts["rows"]] == [(1, 2), (4, 2)]
    assert facts["counters"]["4"]["steps_engaged"] > 0
    assert all(row["ms_per_frame"] > 0 for row in facts["rows"])
