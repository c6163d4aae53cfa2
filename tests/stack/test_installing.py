"""Installing and uninstalling around the real stack, whose packages patch each other, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("order", ["SI", "IS", pytest.param("SIS", marks=pytest.mark.long)])
def test_either_order_applies_everything_and_leaves_nothing(order: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    path = os.pathsep.join([str(_TESTS), inherited.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "support.install_orders", order],
        env={**inherited, "PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["states"].values()) == {"APPLIED"}, result
    assert result["wrapped"] > 20
    assert result["undone"] == "not installed"
    assert result["left"] == []
