"""Stage 1 in vllm-omni's own process, over its sockets: every way in speaks as K=1 does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ways import FRAMES, OFF, WAYS, WITHOUT_OURS, Way, start

from kstep_shim.agreement import judge
from kstep_shim.declaration import State
from kstep_shim.demo.checkpoint import write_checkpoint
from kstep_shim.report import Report, read_directory

TIMEOUT_S = 400


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def baseline(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start K=1 without the shim; what it spoke, when asked."""
    directory = tmp_path_factory.mktemp("k1")
    process = start(OFF, _program(checkpoint), directory / "log")
    found: list[Any] = []

    def spoken() -> Any:
        if not found:
            found.append(_answer(process, directory / "log"))
        return found[0]

    yield spoken
    process.kill()


def _program(checkpoint: Path, *options: str) -> list[str]:
    return ["-m", "kstep_shim.demo.spawned", str(checkpoint), *options]


def _answer(process: Any, log: Path) -> Any:
    out, _ = process.communicate(timeout=TIMEOUT_S)
    log.with_name("log.out").write_text(out)
    assert process.returncode == 0, (out + log.read_text())[-4000:]
    return json.loads(out.splitlines()[-1])


def _speak(
    way: Way, checkpoint: Path, directory: Path, *options: str
) -> tuple[Any, tuple[Report, ...]]:
    status = directory / "status"
    environ = {"KSTEP_SHIM_STATUS_DIR": str(status)}
    process = start(way, _program(checkpoint, *options), directory / "log", **environ)
    spoken = _answer(process, directory / "log")
    return spoken, read_directory(status) if status.is_dir() else ()


def _assert_engaged(reports: tuple[Report, ...]) -> None:
    verdict = judge(reports)
    assert verdict.problems == ()
    assert verdict.frames == FRAMES
    (worker,) = [report for report in reports if "worker" in (report.role or "")]
    assert worker.counters["steps_engaged"] > 0
    assert worker.counters["frames_run"] > FRAMES
    assert worker.counters.get("backstop_reached", 0) == 0
    assert {record.state for record in worker.patches} == {State.APPLIED}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(name, marks=[] if name == "install" else [pytest.mark.long])
        for name in ("install", "plugin", "bootstrap", "run")
    ],
)
def test_each_way_in_alone_arms_the_stage(
    checkpoint: Path, baseline: Any, tmp_path: Path, way: str
) -> None:
    spoken, reports = _speak(WAYS[way], checkpoint, tmp_path)
    _assert_engaged(reports)
    assert spoken == baseline()
    assert all(len(one["codes"]) > FRAMES for one in spoken.values())


@pytest.mark.long
def test_a_runner_in_a_grandchild(checkpoint: Path, baseline: Any, tmp_path: Path) -> None:
    spoken, reports = _speak(WAYS["plugin"], checkpoint, tmp_path, "--executor", "mp")
    _assert_engaged(reports)
    assert len({report.pid for report in reports}) == 3
    assert spoken == baseline()


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Way(environ={**WAYS["plugin"].environ, "VLLM_PLUGINS": WITHOUT_OURS}), ""),
        (
            Way(options=("--install", "8"), environ={"VLLM_PLUGINS": WITHOUT_OURS}),
            "keeps the plugin out of stage 1: add kstep_shim to it",
        ),
    ],
    ids=["nothing armed", "a head whose stage would not be armed"],
)
def test_without_a_carrier_stage_1_serves_one_frame(
    checkpoint: Path, baseline: Any, tmp_path: Path, way: Way, words: str
) -> None:
    spoken, reports = _speak(way, checkpoint, tmp_path)
    assert spoken == baseline()
    assert all(not report.active for report in reports)
    log = (tmp_path / "log.out").read_text()
    assert words in log
    assert log.count("one frame per step (K=1)") == (1 if words else 0)


@pytest.mark.long
@pytest.mark.parametrize("flags", ["-I", "-E"])
def test_isolated_interpreters_are_all_or_none(
    checkpoint: Path, baseline: Any, tmp_path: Path, flags: str
) -> None:
    # Not -S: that leaves no packages to import at all, so nothing could serve.
    way = WAYS["install"]
    process = start(way, [flags, *_program(checkpoint)], tmp_path / "log")
    assert _answer(process, tmp_path / "log") == baseline()


@pytest.mark.long
def test_an_unarmed_stage_does_not_start(checkpoint: Path, tmp_path: Path) -> None:
    process = start(
        Way(environ={"LOSE_THE_SWITCH": "1"}),
        ["-m", "support.lost_switch", str(checkpoint)],
        tmp_path / "log",
        path=[str(Path(__file__).parents[1])],
    )
    out, _ = process.communicate(timeout=TIMEOUT_S)
    log = out + (tmp_path / "log").read_text()
    assert process.returncode != 0
    assert "this process is not armed: not installed" in log
    assert "Let KSTEP_SHIM=1" in log


@pytest.mark.long
def test_a_killed_engine_process_is_the_usual_error(checkpoint: Path, tmp_path: Path) -> None:
    found = {}
    for name, way in (("k1", OFF), ("k8", WAYS["install"])):
        directory = tmp_path / name
        directory.mkdir()
        tests = str(Path(__file__).parents[1])
        program = ["-m", "support.killed_stage", str(checkpoint)]
        process = start(way, program, directory / "log", path=[tests])
        found[name] = _answer(process, directory / "log")
    assert found["k8"] == found["k1"]
    assert (found["k8"]["error"], found["k8"]["exitcode"]) == ("EngineDeadError", -9)
