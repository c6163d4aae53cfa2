"""``kstep-shim status``: do all processes run K frames, or none?"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kstep_shim.agreement import judge
from kstep_shim.declaration import State
from kstep_shim.report import PatchRecord, Report, write

from .conftest import Command  # type: ignore[import-not-found]

APPLIED = (PatchRecord("verify", State.APPLIED),)
GONE = 4_194_000  # Above what the kernel hands out by default.


def report(role: str | None, pid: int = GONE, **changes: object) -> Report:
    made = Report(True, "sealed", 8, "engine", APPLIED, {"steps_engaged": 3}, pid, role, 1)
    return replace(made, **changes)  # type: ignore[arg-type]


HEAD, STAGE = report("head"), report("engine core and worker", GONE + 1)


def test_all_or_none() -> None:
    assert judge([HEAD, STAGE]).problems == ()
    assert judge([HEAD, STAGE]).frames == 8
    apart = [HEAD, report("engine core", GONE + 1), report("worker", GONE + 2)]
    assert judge(apart).problems == ()
    assert judge([report("head and engine core and worker")]).problems == ()


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([], "no process has written a report"),
        ([HEAD], "no engine core has reported, although K=8 was promised"),
        ([HEAD, report("engine core", GONE + 1)], "no worker has reported"),
        ([HEAD, replace(STAGE, frames=4)], "K differs: pid 4194000 K=8, pid 4194001 K=4"),
        ([HEAD, replace(STAGE, active=False, reason="so")], "is not active: so"),
        (
            [HEAD, replace(STAGE, patches=(PatchRecord("verify", State.DISPLACED, "gone"),))],
            "patch verify is displaced: gone",
        ),
    ],
)
def test_disagreement(reports: list[Report], words: str) -> None:
    verdict = judge(reports)
    assert any(words in problem for problem in verdict.problems), verdict.problems
    assert verdict.frames == 1


def test_pending_is_not_applied_and_not_broken() -> None:
    waiting = (PatchRecord("verify", State.PENDING, "waits for x"),)
    assert judge([replace(HEAD, patches=waiting), STAGE]).problems == ()


def test_an_earlier_start_does_not_speak_for_this_one() -> None:
    alive = report("head", os.getpid())
    problems = judge([alive, HEAD, STAGE]).problems
    assert problems[0] == "no engine core has reported, although K=8 was promised"


def test_the_command(command: Command, tmp_path: Path) -> None:
    write(HEAD, str(tmp_path))
    write(STAGE, str(tmp_path))
    (tmp_path / "notes.json").write_text("{}")
    done = command("status", str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["frames"]) == (0, True, 8)
    assert [process["running"] for process in found["processes"]] == [False, False]
    assert found["processes"][1]["counters"] == {"steps_engaged": 3}
    table = command("status", KSTEP_SHIM_STATUS_DIR=str(tmp_path)).stdout
    for word in ("engine core and worker", "applied", "steps_engaged", "all processes agree"):
        assert word in table


def test_a_disagreement_exits_with_1(command: Command, tmp_path: Path) -> None:
    write(HEAD, str(tmp_path))
    done = command("status", str(tmp_path))
    assert done.returncode == 1
    assert "problem: no engine core has reported" in done.stdout


def test_no_directory_is_wrong_usage(command: Command, tmp_path: Path) -> None:
    assert command("status").returncode == 2
    done = command("status", str(tmp_path / "none"))
    assert (done.returncode, "is not a directory" in done.stderr) == (2, True)


def test_an_empty_directory_is_a_failed_check(command: Command, tmp_path: Path) -> None:
    done = command("status", str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("problem: no process has written a report: stage 1 has not come up yet")


def test_a_broken_report_is_a_problem(command: Command, tmp_path: Path) -> None:
    write(HEAD, str(tmp_path))
    write(STAGE, str(tmp_path))
    (tmp_path / "17.json").write_text("{")
    (tmp_path / "18.json").write_text('{"active": true}')
    done = command("status", str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], done.stderr) == (1, False, "")
    for problem, name in zip(found["problems"], ("17.json", "18.json"), strict=True):
        assert f"{name} is not a report" in problem
        assert "it can be deleted" in problem


def test_titles_are_not_folded(command: Command, tmp_path: Path) -> None:
    write(replace(HEAD, patches=(PatchRecord("a", State.APPLIED),), pid=7), str(tmp_path))
    titles = command("status", str(tmp_path)).stdout.splitlines()
    assert {"processes", "patches", "counters"} <= set(titles)
