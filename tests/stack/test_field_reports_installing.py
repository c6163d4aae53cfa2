"""Field reports 26 to 28 and 32 on the real stack."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import compiled
from support.stages import Stages

_TESTS = Path(__file__).parents[1]
PACKAGES = ("vllm", "vllm_omni", "vllm_ascend")


def import_after_install(what: str) -> dict[str, Any]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    path = os.pathsep.join([str(_TESTS), inherited.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "support.stack_imports", what],
        env={**inherited, "PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_field_report_26_everything_patched_round_trips(stages: Stages) -> None:
    assert stages.call(compiled.pickles) == {"pickle": [], "cloudpickle": []}


@pytest.mark.long
@pytest.mark.parametrize("order", list(itertools.permutations(PACKAGES)), ids=",".join)
def test_field_report_27_every_order_of_imports(order: tuple[str, ...]) -> None:
    found = import_after_install(",".join(order))
    assert found["errors"] == []
    assert set(found["states"].values()) == {"APPLIED"}


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_field_report_27_imports_from_four_threads() -> None:
    for _ in range(20):
        found = import_after_install("storm")
        assert found["errors"] == []
        assert set(found["states"].values()) == {"APPLIED"}


def test_field_report_28_after_an_engine_was_built(stages: Stages) -> None:
    assert "was built before the shim came" in stages.call(compiled.too_late)


def test_field_report_32_the_compiler_sees_the_same(stages: Stages) -> None:
    stock, shimmed = stages.call(compiled.seen(1)), stages.call(compiled.seen(8))
    assert stock["breaks"] == shimmed["breaks"] == {}
    assert stock["graphs"] == shimmed["graphs"] > 0
    assert stock["calls"] == shimmed["calls"] > 0
    assert stock["frames"] == shimmed["frames"]
