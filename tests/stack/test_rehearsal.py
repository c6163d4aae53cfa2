"""A rehearsal follows the deploy YAML: each stage-1 key of it changes what is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.rehearsals import armed, resolved, write_deploy
from support.stages import Stages

from kstep_shim.deployment import read_deployment

MODE = {"mode": 3, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [4, 8, 12, 16]}


def see(stages: Stages, tmp_path: Path, frames: int = 4, **changes: Any) -> dict[str, Any]:
    deploy = write_deploy(tmp_path / "deploy.yaml", **changes)
    found: dict[str, Any] = stages.call(armed(deploy, tmp_path / "armed.pt", frames))
    return found


@pytest.fixture(scope="module")
def plain(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return see(stages, tmp_path_factory.mktemp("plain"))


def test_the_loop_engages(plain: dict[str, Any]) -> None:
    assert (plain["refusal"], plain["k"], plain["source"]) == (None, 4, "install")
    assert plain["engaged"] > 0
    assert plain["came_up"]["scheduler"] == "OmniARScheduler"
    assert plain["came_up"]["async_scheduling"] is False
    assert [stage["model_stage"] for stage in plain["stages"]] == ["llm", "tts", "code2wav"]


def test_max_num_seqs(stages: Stages, tmp_path: Path, plain: dict[str, Any]) -> None:
    found = see(stages, tmp_path, max_num_seqs=2)
    assert (found["rows"], plain["rows"]) == (2, 4)
    assert (found["requests"], plain["requests"]) == (3, 5)


@pytest.mark.long
def test_the_token_budget(stages: Stages, tmp_path: Path, plain: dict[str, Any]) -> None:
    found = see(stages, tmp_path, max_num_batched_tokens=10)
    assert "drafts_dropped: token budget" in found["declined"]
    assert "drafts_dropped: token budget" not in plain["declined"]
    assert "raise the budget to 16" in found["warnings"][0]
    assert found["widest"] <= 10


def test_the_graph_mode(stages: Stages, tmp_path: Path, plain: dict[str, Any]) -> None:
    found = see(stages, tmp_path, enforce_eager=False, compilation_config=MODE)
    assert (plain["came_up"]["graph"], found["came_up"]["graph"]) == ("NONE", "FULL_DECODE_ONLY")
    assert found["engaged"] > 0


@pytest.mark.long
def test_the_chunk(stages: Stages, tmp_path: Path, plain: dict[str, Any]) -> None:
    assert see(stages, tmp_path, chunk=10)["payloads"] > plain["payloads"]
    found = see(stages, tmp_path, chunk=3)
    assert "codec_chunk_frames=3" in found["refusal"]
    assert "came_up" not in found


@pytest.mark.long
def test_the_sampling(stages: Stages, tmp_path: Path, plain: dict[str, Any]) -> None:
    found = see(stages, tmp_path, sampling={"max_tokens": 9})
    assert max(found["tokens"]) == 9 < max(plain["tokens"])


def test_k_from_the_yaml_wins(stages: Stages, tmp_path: Path) -> None:
    key = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 1}
    found = see(stages, tmp_path, speculative_config=key)
    assert (found["k"], found["source"]) == (3, "the deploy YAML")


def test_what_would_be_refused(stages: Stages, tmp_path: Path) -> None:
    found = see(stages, tmp_path, enable_prefix_caching=True)
    assert found["k"] == 1
    assert "enable_prefix_caching=True" in found["refusal"]


def test_the_doctor_reads_deploy_files_as_vllm_omni_does(stages: Stages) -> None:
    import vllm_omni

    assert vllm_omni.__file__ is not None
    directory = Path(vllm_omni.__file__).parent / "deploy"
    paths = sorted(directory.glob("minicpmo_4_5*.yaml"))
    assert len(paths) >= 5
    for path, real in zip(paths, stages.call(partial(resolved, paths)), strict=True):
        ours = read_deployment(path, "npu")
        for stage in ours.stages:
            theirs = real[stage.stage_id]
            assert stage.replicas == theirs["replicas"], path
            assert stage.connector == theirs["connector"], path
            # They also put in what the pipeline's topology says, and the scheduling that follows.
            for name, value in stage.arguments.items():
                if name != "async_scheduling":
                    assert theirs["arguments"].get(name) == value, (path, stage.stage_id, name)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_command(tmp_path: Path) -> None:
    deploy = write_deploy(tmp_path / "deploy.yaml")
    command = [sys.executable, "-m", "kstep_shim", "rehearse", str(deploy)]
    done = subprocess.run(
        [*command, "-k", "8", "--json"], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (found["ok"], found["identical"], found["k"]) == (True, True, 8)
    assert found["steps_engaged"] > 0
    assert found["steps"] < found["steps_baseline"]
    refused = write_deploy(tmp_path / "refused.yaml", chunk=5)
    done = subprocess.run(
        [*command[:-1], str(refused)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "codec_chunk_frames=5" in done.stdout
    assert "does not show: speed" in done.stdout
