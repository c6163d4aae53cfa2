"""A worker killed inside a K-frame step: the stack's usual error, and nothing heard twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.dying_worker import VARIABLE, write_plugin
from support.ways import FRAMES, OFF, WAYS, Way, start

from kstep_shim.demo.checkpoint import write_checkpoint

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
NEVER = 10**9


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dying")
    write_checkpoint(directory / "checkpoint")
    write_plugin(directory / "site")
    return directory


def listen(directory: Path, way: Way, forward: int) -> dict[str, Any]:
    """What the client hears when the worker dies in that forward of the Talker."""
    log = directory / f"log-{forward}-{len(way.options)}"
    program = ["-m", "support.dying_worker", str(directory / "checkpoint")]
    path = [str(Path(__file__).parents[1]), str(directory / "site")]
    process = start(way, program, log, path=path, **{VARIABLE: str(forward)})
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0, (out + log.read_text())[-4000:]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def whole(directory: Path) -> dict[str, Any]:
    return listen(directory, OFF, NEVER)


@pytest.fixture(scope="module")
def usual(directory: Path) -> dict[str, Any]:
    return listen(directory, OFF, 10)


@pytest.mark.parametrize("frame", [1, 4, 6])
def test_the_client_hears_the_usual_error(
    directory: Path, whole: dict[str, Any], usual: dict[str, Any], frame: int
) -> None:
    # Both prompts take one forward or two, and the first whole step FRAMES.
    found = listen(directory, WAYS["install"], 2 + FRAMES + frame)
    assert whole["error"] is None
    assert found["error"] == usual["error"] == "EngineDeadError"
    assert found["left"] == usual["left"]
    for name, one in found["spoken"].items():
        all_of_it = whole["spoken"][name]
        assert one["finish_reason"] is None
        assert FRAMES < len(one["codes"]) == len(one["tokens"]) <= 2 + FRAMES
        assert one["codes"] == all_of_it["codes"][: len(one["codes"])]
        assert one["tokens"] == all_of_it["tokens"][: len(one["tokens"])]
