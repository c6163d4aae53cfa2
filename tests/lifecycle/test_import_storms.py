"""200 storms of concurrent imports, each in a fresh interpreter, on stub targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import import_storm

_TESTS = Path(__file__).parents[1]
STORMS = 200
#: Field report 27 allows a minute before a storm counts as hung.
LIMIT_S = 60


@pytest.mark.parametrize("shape", import_storm.SHAPES)
def test_field_report_27_storms_on_stubs(tmp_path: Path, shape: str) -> None:
    import_storm.write_package(tmp_path)
    path = os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])
    for _ in range(STORMS // len(import_storm.SHAPES)):
        done = subprocess.run(
            [sys.executable, "-m", "support.import_storm", str(tmp_path), shape],
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["errors"] == []
        assert set(result["states"].values()) == {"APPLIED"}, result
        assert set(result["layers"]) == {1}, result
