"""The examples: each is run, or read by what would read it."""

from __future__ import annotations

import ast
import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kstep_shim._sources import locate
from kstep_shim.settings import Settings
from kstep_shim.variables import VARIABLES, switched

from .conftest import Command  # type: ignore[import-not-found]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_the_ledger_is_what_the_declarations_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "write_ledger.py", "--check"], check=False
    )
    assert done.returncode == 0, "run tools/write_ledger.py"


def test_every_example_is_known_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {
        "container.env",
        "deploy_with_key.yaml",
        "deploy_without_key.yaml",
        "kstep-omni.service",
        "kubernetes.yaml",
        "launcher.py",
        "read_status.py",
    }


def test_the_launcher_installs_before_it_imports_the_engine() -> None:
    tree = ast.parse((EXAMPLES / "launcher.py").read_text())
    (main,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    lines = {ast.unparse(node): node.lineno for node in ast.walk(main) if hasattr(node, "lineno")}
    installed = next(line for text, line in lines.items() if text.startswith("kstep_shim.install("))
    imported = lines["from vllm_omni.entrypoints.omni import Omni"]
    assert installed < imported


def test_reading_the_status(tmp_path: Path) -> None:
    def read(directory: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, EXAMPLES / "read_status.py", directory]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert read(tmp_path / "none").returncode == 2
    assert read(tmp_path).stdout.startswith("no process has written a report: ")
    report = {
        "active": True, "reason": "sealed", "frames": 8, "source": "engine", "patches": [],
        "counters": {"steps_engaged": 5}, "pid": 4_194_000, "stage": 1,
        "role": "head and engine core and worker",
    }  # fmt: skip
    (tmp_path / "4194000.json").write_text(json.dumps(report))
    assert (read(tmp_path).returncode, read(tmp_path).stdout) == (0, "K=8, 5 steps engaged\n")


def environment_of(name: str) -> dict[str, str]:
    text = (EXAMPLES / name).read_text()
    if name.endswith(".yaml"):
        (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
        return {entry["name"]: entry["value"] for entry in container["env"]}
    lines = [line.removeprefix("Environment=") for line in text.splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith("KSTEP_SHIM"))


@pytest.mark.parametrize("name", ["container.env", "kubernetes.yaml", "kstep-omni.service"])
def test_environments_are_valid(name: str) -> None:
    environ = environment_of(name)
    assert set(environ) <= set(VARIABLES)
    assert switched(environ) is True
    assert Settings.from_environ(environ).frames == 8


def test_the_unit_can_be_read() -> None:
    class Repeated(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, [*self[key], *value] if key in self and value else value)

    parser = configparser.RawConfigParser(dict_type=Repeated, strict=False)
    parser.optionxform = str
    parser.read(EXAMPLES / "kstep-omni.service")
    assert {"Unit", "Service", "Install"} == set(parser.sections())


def test_a_deployment_that_fell_back_to_one_frame_still_serves() -> None:
    (container,) = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    unit = (EXAMPLES / "kstep-omni.service").read_text().splitlines()
    (before,) = [line for line in unit if line.startswith("ExecStartPre=")]
    assert "doctor" in before
    assert before.startswith("ExecStartPre=-"), "a failed check must not keep it from starting"


@pytest.mark.parametrize(("name", "words"), [("with", "K=8 (the deploy YAML)"), ("without", "K=4")])
@pytest.mark.stack
def test_the_doctor_accepts_the_deploy_files(
    command: Command, tmp_path: Path, name: str, words: str
) -> None:
    vllm_omni = locate("vllm_omni")
    assert vllm_omni is not None
    shutil.copy(vllm_omni.parent / "deploy" / "minicpmo_4_5.yaml", tmp_path)
    deploy = shutil.copy(EXAMPLES / f"deploy_{name}_key.yaml", tmp_path)
    done = command("doctor", os.fspath(deploy), KSTEP_SHIM="1", KSTEP_SHIM_FRAMES="4")
    assert done.returncode == 0, done.stdout
    assert words in done.stdout
