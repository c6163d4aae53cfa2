"""``kstep-shim demo`` from the outside: two processes, one verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kstep_shim.demo import outcome
from kstep_shim.demo.compare import SHIMMED

KEYS = {
    "k",
    "requests",
    "frames",
    "identical",
    "steps_baseline",
    "steps",
    "host_ms_per_frame_baseline",
    "host_ms_per_frame",
    "engaged",
}


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kstep_shim", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("demo")
    size = ("-k", "4", "--requests", "2", "--frames", "24")
    done = demo("--json", *size, "--keep", str(directory))
    assert done.returncode == 0, done.stderr
    return directory, json.loads(done.stdout)


def test_the_verdict_is_one_json_object(kept: tuple[Path, dict[str, Any]]) -> None:
    facts = kept[1]
    assert facts.keys() >= KEYS
    assert (facts["k"], facts["requests"], facts["frames"]) == (4, 2, 46)
    assert facts["identical"] is True
    assert facts["steps"] < facts["steps_baseline"]
    assert facts["engaged"] == 1.0


def test_a_person_gets_a_table(kept: tuple[Path, dict[str, Any]]) -> None:
    done = demo("-k", "4", "--compare", str(kept[0]))
    assert done.returncode == 0
    assert "identical" in done.stdout
    assert "yes" in done.stdout


@pytest.mark.parametrize("plant", ["code", "token", "reason", "hidden", "payload", "draws"])
def test_a_planted_difference_fails(kept: tuple[Path, dict[str, Any]], plant: str) -> None:
    path = kept[0] / f"{SHIMMED}.pt"
    original = path.read_bytes()
    outcomes = outcome.load(path)
    request = next(iter(next(iter(outcomes.values())).requests.values()))
    if plant == "code":
        request.codes[3] ^= 1
    elif plant == "token":
        request.tokens[3] ^= 1
    elif plant == "reason":
        request.finish_reason = "abort"
    elif plant == "hidden":
        request.hidden[3][0, 0] += 1e-6
    elif plant == "payload":
        request.payloads[0]["codes"]["audio"][5] ^= 1
    else:
        request.draws = "other"
    try:
        outcome.save(outcomes, path)
        done = demo("--json", "-k", "4", "--compare", str(kept[0]))
    finally:
        path.write_bytes(original)
    assert done.returncode == 1
    assert json.loads(done.stdout)["identical"] is False


@pytest.mark.parametrize("frames", ["0", "17", "-1", "eight"])
def test_wrong_usage(frames: str) -> None:
    done = demo("-k", frames)
    assert done.returncode == 2
    assert frames in done.stderr
