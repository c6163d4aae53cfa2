"""A rehearsal on the codec head: its pipeline says more of a stage than the engine takes."""

from __future__ import annotations

from pathlib import Path

from support.rehearsals import armed, write_deploy
from support.stages import Stages


def test_the_loop_engages(stages: Stages, tmp_path: Path) -> None:
    deploy = write_deploy(tmp_path / "deploy.yaml")
    found = stages.call(armed(deploy, tmp_path / "armed.pt", 4))
    assert (found["refusal"], found["k"], found["source"]) == (None, 4, "install")
    assert found["engaged"] > 0
    assert found["came_up"]["scheduler"] == "OmniARScheduler"
