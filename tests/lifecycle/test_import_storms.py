"""200 storms of concurrent imports, each in a fresh interpreter, on stub targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import import_storm
from support.fresh import run_script

STORMS = 200
#: Field report 27 allows a minute before a storm counts as hung.
LIMIT_S = 60


@pytest.mark.parametrize("shape", import_storm.SHAPES)
def test_field_report_27_storms_on_stubs(tmp_path: Path, shape: str) -> None:
    import_storm.write_package(tmp_path)
    for _ in range(STORMS // len(import_storm.SHAPES)):
        result = run_script("support.import_storm", str(tmp_path), shape, timeout=LIMIT_S)
        assert result["errors"] == []
        assert set(result["states"].values()) == {"APPLIED"}, result
        assert set(result["layers"]) == {1}, result
