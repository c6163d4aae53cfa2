"""``kstep-shim env`` and ``run``: arming a deployment from outside."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kstep_shim.errors import KStepError
from kstep_shim.launching import BOOTSTRAP, launch_environment
from kstep_shim.settings import Settings

from .conftest import Command  # type: ignore[import-not-found]

_SHOW = "import json, os, sys; print(json.dumps(dict(os.environ)))"


def test_the_smallest_environment() -> None:
    assert launch_environment({}) == {"KSTEP_SHIM": "1", "KSTEP_SHIM_FRAMES": "8"}
    assert launch_environment({}, frames=4)["KSTEP_SHIM_FRAMES"] == "4"


def test_what_the_environment_says_already_is_kept() -> None:
    environ = {"KSTEP_SHIM_FRAMES": "3", "KSTEP_SHIM_NARROW": "off", "KSTEP_SHIM_STRICT": "1"}
    made = launch_environment(environ, status_dir="/tmp/reports")
    assert made == {
        "KSTEP_SHIM": "1",
        **environ,
        "KSTEP_SHIM_STATUS_DIR": "/tmp/reports",
    }
    assert Settings.from_environ(made) == Settings.from_environ({**environ, **made})


def test_a_bad_setting_is_an_error() -> None:
    with pytest.raises(KStepError, match="KSTEP_SHIM_NARROW='maybe'"):
        launch_environment({"KSTEP_SHIM_NARROW": "maybe"})


def test_a_plugin_name_with_a_space_is_another_name() -> None:
    # vLLM splits the list at its commas and nothing else.
    made = launch_environment({"VLLM_PLUGINS": "ascend, kstep_shim"})
    assert made["VLLM_PLUGINS"] == "ascend, kstep_shim,kstep_shim"


def test_a_plugin_list_gets_the_plugin() -> None:
    assert launch_environment({"VLLM_PLUGINS": "ascend"})["VLLM_PLUGINS"] == "ascend,kstep_shim"
    assert "VLLM_PLUGINS" not in launch_environment({"VLLM_PLUGINS": "ascend,kstep_shim"})


def test_the_bootstrap_comes_first_and_once() -> None:
    path = os.pathsep.join(["/a", str(BOOTSTRAP), "/b"])
    made = launch_environment({"PYTHONPATH": path}, bootstrap=True)
    assert made["PYTHONPATH"] == os.pathsep.join([str(BOOTSTRAP), "/a", "/b"])


def test_ray_prefixes_cover_the_switch() -> None:
    name = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
    made = launch_environment({name: "MINE_"}, ray=True)
    prefixes = made[name].split(",")
    assert prefixes[0] == "MINE_"
    assert all(any(k.startswith(p) for p in prefixes) for k in ("KSTEP_SHIM", "KSTEP_SHIM_FRAMES"))


def test_env(command: Command) -> None:
    done = command("env", "-k", "4", "--status-dir", "/tmp/a b")
    assert done.stdout.splitlines() == [
        "export KSTEP_SHIM=1",
        "export KSTEP_SHIM_FRAMES=4",
        "export KSTEP_SHIM_STATUS_DIR='/tmp/a b'",
    ]
    assert json.loads(command("env", "--json").stdout) == launch_environment({})
    assert command("env", "-k", "17").returncode == 2


def test_run_becomes_the_command(command: Command) -> None:
    done = command("run", "-k", "4", "--", sys.executable, "-c", _SHOW)
    seen = json.loads(done.stdout)
    assert (seen["KSTEP_SHIM"], seen["KSTEP_SHIM_FRAMES"]) == ("1", "4")
    assert seen["PYTHONPATH"].split(os.pathsep)[0] == str(BOOTSTRAP)


@pytest.mark.parametrize("code", [0, 1, 2, 7])
def test_run_exits_as_the_command_does(command: Command, code: int) -> None:
    assert command("run", "--", "sh", "-c", f"exit {code}").returncode == code


def test_run_takes_options_of_the_command(command: Command) -> None:
    done = command("run", "--", "echo", "-k", "--json", "--", "x")
    assert done.stdout == "-k --json -- x\n"


def test_env_keeps_a_veto(command: Command) -> None:
    done = command("env", "-k", "4", KSTEP_SHIM="0")
    assert (done.returncode, done.stdout) == (1, "export KSTEP_SHIM=0\n")
    assert "KSTEP_SHIM=0 in the environment: unset it" in done.stderr
    assert json.loads(command("env", "--json", KSTEP_SHIM="0").stdout) == {"KSTEP_SHIM": "0"}


@pytest.mark.parametrize("arguments", [["env"], ["run", "--", "true"]])
def test_a_misspelt_variable_is_named(command: Command, arguments: list[str]) -> None:
    done = command(*arguments, KSTEP_SHIM_FRAME="4")
    assert done.returncode == 0
    assert "KSTEP_SHIM_FRAME is no variable" in done.stderr
    assert "did you mean KSTEP_SHIM_FRAMES?" in done.stderr


def test_a_veto_stays(command: Command) -> None:
    done = command("run", "--", sys.executable, "-c", _SHOW, KSTEP_SHIM="0")
    assert json.loads(done.stdout)["KSTEP_SHIM"] == "0"
    assert "starting without the shim" in done.stderr


def test_a_command_that_is_not_there(command: Command, tmp_path: Path) -> None:
    done = command("run", "--", "no-such-command")
    assert (done.returncode, done.stderr) == (
        127,
        "kstep-shim: no-such-command: command not found\n",
    )
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert command("run", "--", str(plain)).returncode == 126
    assert command("run").returncode == 2


def test_run_arms_an_interpreter_that_has_no_plugin(command: Command, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = "import vllm; from kstep_shim.installer import current; print(current().settings.frames)"
    done = command("run", "-k", "5", "--", sys.executable, "-c", code, PYTHONPATH=path)
    assert done.stdout == "5\n", done.stderr
