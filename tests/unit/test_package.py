"""The package from outside: imports, the plugin, and the process-wide installer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import kstep_shim


def run(code: str, **environ: str) -> Any:
    """Run `code` in a fresh interpreter; return the JSON that it prints and its log."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


_HEAVY = "sorted({'torch', 'vllm', 'wrapt', 'dataclasses'} & set(sys.modules))"


def test_importing_the_package_does_nothing() -> None:
    code = (
        "import os, sys, json; before = dict(os.environ); hooks = list(sys.meta_path);"
        "import kstep_shim, kstep_shim.plugin; kstep_shim.plugin.register();"
        f"print(json.dumps([{_HEAVY}, before == dict(os.environ), hooks == sys.meta_path]))"
    )
    assert run(code) == ([[], True, True], "")
    assert run(code, KSTEP_SHIM="0")[0][0] == []


def test_every_public_name_resolves() -> None:
    for name in kstep_shim.__all__:
        assert getattr(kstep_shim, name) is not None
    assert set(kstep_shim.__all__) <= set(dir(kstep_shim))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kstep_shim.nothing  # noqa: B018


@pytest.mark.stack
def test_install_and_uninstall_leave_the_environment_as_it_was() -> None:
    code = """
import json, os, sys, kstep_shim
before = dict(os.environ)
first = kstep_shim.install(frames=4)
exported = {k: v for k, v in os.environ.items() if k.startswith("KSTEP_SHIM")}
again = kstep_shim.install()
last = kstep_shim.uninstall()
print(json.dumps([
    first.to_dict(), exported, again.active, last.active, before == dict(os.environ),
    sorted({"vllm", "vllm_omni", "vllm_ascend"} & set(sys.modules)),
]))
"""
    (first, exported, again, last, same, loaded), _ = run(code)
    assert first["active"], first["reason"]
    assert (first["frames"], first["source"]) == (4, "install")
    assert {record["state"] for record in first["patches"]} == {"PENDING"}
    assert exported["KSTEP_SHIM"] == "1"
    assert exported["KSTEP_SHIM_FRAMES"] == "4"
    assert (again, last, same, loaded) == (True, False, True, [])


_REGISTER = """
import json, logging
logging.basicConfig(format="%(levelname)s %(message)s")
from kstep_shim.plugin import register
raised = None
try:
    register()
    register()
except Exception as error:
    raised = f"{type(error).__name__}: {error}"
import kstep_shim
print(json.dumps([kstep_shim.status().to_dict(), raised]))
"""


@pytest.mark.stack
def test_the_plugin_installs_what_the_environment_says() -> None:
    (report, raised), log = run(_REGISTER, KSTEP_SHIM="1", KSTEP_SHIM_FRAMES="4")
    assert (report["active"], report["frames"], report["source"]) == (True, 4, "environment")
    assert (raised, log) == (None, "")


@pytest.mark.parametrize(
    "environ",
    [{"KSTEP_SHIM": "yes"}, {"KSTEP_SHIM": "1", "KSTEP_SHIM_FRAMES": "17"},
     {"KSTEP_SHIM": "1", "KSTEP_SHIM_DISABLE": "nothing"}],
)  # fmt: skip
def test_a_bad_value_is_one_error_line_and_one_frame(environ: dict[str, str]) -> None:
    (report, raised), log = run(_REGISTER, **environ)
    assert (report["active"], report["frames"], raised) == (False, 1, None)
    assert log.count("ERROR") == 1
    assert next(reversed(environ)) in log
    assert next(reversed(environ)) in report["reason"]
    (report, raised), _ = run(_REGISTER, KSTEP_SHIM_STRICT="1", **environ)
    assert not report["active"]
    assert raised.startswith("KStepError: ")


def test_a_refusal_is_one_warning_and_one_frame() -> None:
    environ = {"KSTEP_SHIM": "1", "KSTEP_SHIM_DISABLE": "model_forward"}
    (report, raised), log = run(_REGISTER, **environ)
    assert (report["active"], raised) == (False, None)
    assert "model_forward" in report["reason"]
    assert len(log.splitlines()) == 1
    _, raised = run(_REGISTER, KSTEP_SHIM_STRICT="1", **environ)[0]
    assert "model_forward" in raised
