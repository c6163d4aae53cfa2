"""0 as wanted, 1 a check failed or something refused, 2 wrong usage: the same for all commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Command  # type: ignore[import-not-found]

BAD = {"KSTEP_SHIM_FRAMES": "17"}


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["env"], BAD),
        (["run", "--", "true"], BAD),
        (["run", "--", "true"], {"KSTEP_SHIM": "yes"}),
        (["env"], {"KSTEP_SHIM": "yes"}),
        (["env", "-k", "0"], {}),
        (["doctor", "none.yaml"], {}),
        (["rehearse", "none.yaml"], {}),
        (["status", "none"], {}),
        (["status"], {}),
        (["demo", "--compare", "none"], {}),
        (["demo", "-k", "17"], {}),
        (["nothing"], {}),
        ([], {}),
    ],
)
def test_wrong_usage_is_2_and_says_what(
    command: Command, arguments: list[str], environ: dict[str, str]
) -> None:
    done = command(*arguments, **environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert "kstep-shim" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "stages: 1",
        "stages: [{max_num_seqs: 4}]",
        "stages: [{stage_id: 1}]\nplatforms: {npu: {stages: [{max_num_seqs: 4}]}}",
        "stages: [{stage_id: 1}]\nplatforms: [npu]",
        "stages: [{stage_id: 1, engine_args: 4}]",
        "base_config: none.yaml",
        "base_config: 4",
        "a: [",
    ],
)
def test_a_file_that_is_no_deploy_yaml_is_wrong_usage(
    command: Command, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    done = command("doctor", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kstep-shim doctor: ")
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) < 6


def test_a_failed_check_is_1(command: Command, tmp_path: Path) -> None:
    assert command("status", str(tmp_path)).returncode == 1
    done = command("doctor", **BAD)
    assert done.returncode == 1, "to the doctor, a variable is one of the things to check"
    assert "KSTEP_SHIM_FRAMES='17'" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kstep_shim", "env", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, b"")
