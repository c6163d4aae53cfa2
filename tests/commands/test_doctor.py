"""``kstep-shim doctor``: one line per thing that could go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kstep_shim.catalog import patches
from kstep_shim.doctor import Verdict, examine
from kstep_shim.launching import BOOTSTRAP

from .conftest import Command  # type: ignore[import-not-found]

DEPLOY = """
pipeline: minicpmo_4_5
enable_prefix_caching: false
connectors:
  shm: {name: SharedMemoryConnector, extra: {codec_chunk_frames: 25}}
stages:
  - {stage_id: 0, max_num_seqs: 4}
  - stage_id: 1
    max_num_seqs: 4
    max_num_batched_tokens: 1024
    output_connectors: {to_stage_2: shm}
  - {stage_id: 2}
"""


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    path = tmp_path / "deploy.yaml"
    path.write_text(DEPLOY)
    return path


def checks(command: Command, *arguments: object, **environ: str) -> tuple[int, dict[str, Any]]:
    done = command("doctor", "--json", *map(str, arguments), **environ)
    found = json.loads(done.stdout)
    assert found["ok"] is (done.returncode == 0)
    return done.returncode, {
        check["name"]: (check["verdict"], check["reason"]) for check in found["checks"]
    }


@pytest.mark.stack
def test_the_released_stack_passes(command: Command) -> None:
    code, found = checks(command, KSTEP_SHIM="1")
    assert code == 0
    for patch in patches():
        assert found[f"patch {patch.name}"][0] == "pass"
    assert found["vllm-omni"] == ("pass", "0.26.0")
    assert found["settings"] == ("pass", "on, K=8 (default)")


@pytest.mark.parametrize(
    ("version", "verdict", "words"),
    [
        ("0.26.0", Verdict.PASS, "a stack for CUDA"),
        ("0.30.0", Verdict.FAIL, "not tested with vllm-ascend left out, only with"),
    ],
)
def test_a_stack_without_vllm_ascend(
    monkeypatch: pytest.MonkeyPatch, version: str, verdict: Verdict, words: str
) -> None:
    from kstep_shim import guards

    stack = {"vllm": version, "vllm-omni": version, "wrapt": "2.0.0"}
    monkeypatch.setattr(guards, "installed_version", stack.get)
    (check,) = [check for check in examine({}) if check.name == "vllm-ascend"]
    assert check.verdict is verdict
    assert words in check.reason


def test_it_imports_none_of_the_stack() -> None:
    code = (
        "import sys; from kstep_shim.cli import main; main(['doctor', '--json'])\n"
        "loaded = {'torch', 'vllm', 'vllm_omni', 'vllm_ascend', 'wrapt'} & set(sys.modules)\n"
        "sys.exit(repr(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.stack
def test_switched_off_is_a_warning(command: Command) -> None:
    code, found = checks(command)
    assert (code, found["settings"][0]) == (0, "warn")
    assert checks(command, KSTEP_SHIM="0")[1]["settings"][0] == "warn"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"KSTEP_SHIM_FRAMES": "17"}, "KSTEP_SHIM_FRAMES='17' is not valid"),
        ({"KSTEP_SHIM_DISABLE": "nothing"}, "no patch called 'nothing'"),
        ({"KSTEP_SHIM": "yes"}, "KSTEP_SHIM='yes' is not valid"),
    ],
)
def test_a_bad_setting_fails(command: Command, environ: dict[str, str], words: str) -> None:
    code, found = checks(command, **environ)
    assert (code, found["settings"][0]) == (1, "fail")
    assert words in found["settings"][1]


def test_a_required_patch_that_is_left_out_fails(command: Command) -> None:
    code, found = checks(command, KSTEP_SHIM="1", KSTEP_SHIM_DISABLE="verify")
    assert (code, found["patch verify"][0]) == (1, "fail")


@pytest.mark.stack
def test_plugins_that_are_filtered_out(command: Command) -> None:
    code, found = checks(command, KSTEP_SHIM="1", VLLM_PLUGINS="ascend")
    assert code == 1
    assert "add kstep_shim to it" in found["stages are armed by"][1]
    assert found["VLLM_PLUGINS"] == ("fail", "ascend filters out kstep_shim: add it")
    code, found = checks(command, KSTEP_SHIM="1", VLLM_PLUGINS="kstep_shim")
    assert code == 0
    assert found["VLLM_PLUGINS"][0] == "warn"
    assert "filters out ascend" in found["VLLM_PLUGINS"][1]
    code, found = checks(command, KSTEP_SHIM="1", VLLM_PLUGINS="ascend,kstep_shim")
    assert (code, found["VLLM_PLUGINS"][0]) == (0, "pass")
    path = os.pathsep.join([str(BOOTSTRAP), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environ = {"KSTEP_SHIM": "1", "VLLM_PLUGINS": "ascend", "PYTHONPATH": path}
    code, found = checks(command, **environ)
    assert (code, found["VLLM_PLUGINS"][0]) == (0, "pass")
    assert found["stages are armed by"][1].startswith("the bootstrap directory")


def test_ray_needs_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    from kstep_shim import guards

    versions = guards.installed_version
    monkeypatch.setattr(
        guards, "installed_version", lambda n: "2.50" if n == "ray" else versions(n)
    )

    def verdict(**environ: str) -> Verdict:
        return next(check.verdict for check in examine(environ) if check.name == "Ray")

    name = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
    first = {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0"}
    assert verdict() is Verdict.PASS
    assert verdict(**first) is Verdict.WARN
    assert verdict(**first, **{name: "KSTEP_SHIM_"}) is Verdict.WARN
    assert verdict(**first, **{name: "OTHER,KSTEP_SHIM"}) is Verdict.PASS


@pytest.mark.stack
def test_a_deploy_yaml(command: Command, deploy: Path) -> None:
    code, found = checks(command, deploy, KSTEP_SHIM="1", KSTEP_SHIM_FRAMES="4")
    assert code == 0
    assert found["stage 0"] == ("pass", "not touched")
    assert found["stage 1"] == ("pass", "K=4 (environment)")


@pytest.mark.stack
def test_what_would_not_be_armed_is_not_promised(command: Command, deploy: Path) -> None:
    code, found = checks(command, deploy, KSTEP_SHIM="1", VLLM_PLUGINS="ascend")
    assert (code, found["stage 1"][0]) == (1, "fail")
    assert "one frame per step: stages are armed by: VLLM_PLUGINS=ascend" in found["stage 1"][1]


def test_a_misspelt_variable_is_a_warning(command: Command) -> None:
    found = checks(command, KSTEP_SHIM="1", KSTEP_SHIM_FRAME="4")[1]
    assert found["variables"][0] == "warn"
    assert "did you mean KSTEP_SHIM_FRAMES?" in found["variables"][1]


@pytest.mark.stack
def test_a_deploy_yaml_with_the_key_and_no_shim(command: Command, deploy: Path) -> None:
    key = "    speculative_config: {method: ngram, num_speculative_tokens: 7}\n"
    deploy.write_text(DEPLOY.replace("    max_num_batched", key + "    max_num_batched"))
    for environ in ({}, {"KSTEP_SHIM": "0"}):
        code, found = checks(command, deploy, **environ)
        assert (code, found["stage 1"][0]) == (1, "fail")
        assert "crashes at the first drafted step" in found["stage 1"][1]
    _, found = checks(command, deploy, KSTEP_SHIM="1", KSTEP_SHIM_FRAMES="4")
    assert found["stage 1"] == ("pass", "K=8 (the deploy YAML)")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("codec_chunk_frames: 25", "codec_chunk_frames: 5", "codec_chunk_frames=5"),
        ("enable_prefix_caching: false", "enable_prefix_caching: true", "enable_prefix_caching"),
        ("  - stage_id: 1\n", "  - stage_id: 1\n    tensor_parallel_size: 2\n", "tensor_parallel"),
    ],
)
def test_a_deploy_yaml_that_would_be_refused(
    command: Command, deploy: Path, before: str, after: str, words: str
) -> None:
    deploy.write_text(DEPLOY.replace(before, after))
    code, found = checks(command, deploy, KSTEP_SHIM="1")
    assert (code, found["stage 1"][0]) == (1, "fail")
    assert words in found["stage 1"][1]


def test_a_file_that_is_no_deploy_yaml(command: Command, tmp_path: Path) -> None:
    done = command("doctor", str(tmp_path / "none.yaml"))
    assert done.returncode == 2
    assert "none.yaml cannot be read" in done.stderr
    (tmp_path / "list.yaml").write_text("[1, 2]")
    assert "expected a mapping" in command("doctor", str(tmp_path / "list.yaml")).stderr


@pytest.mark.stack
def test_the_table_names_everything(command: Command, deploy: Path) -> None:
    done = command("doctor", str(deploy), KSTEP_SHIM="1")
    assert done.returncode == 0
    for name in ("vllm-ascend", "patch parse_output", "stage 1", "K=8"):
        assert name in done.stdout
