"""What install, seal and uninstall do to a target, and to the environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import wrapt
from support.stubs import Stack, raw_attributes

from kstep_shim import KStepError, Settings
from kstep_shim.declaration import Side, State


def test_wrappers_pass_through_until_their_side_is_sealed(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer()
    assert installer.install(frames=1).active
    runner = module.Runner()
    assert runner.wrapped, "the constructor decides, so it runs before the seal"
    assert runner.method(1) == ["method", 1]
    installer.seal(Side.WORKER, "worker", 1)
    assert runner.method(1) == ["method", 1, "wrapped"]
    assert module.Runner.static(1, 2) == runner.static(1, 2) == ["static", 1, "wrapped"]
    assert module.Base().inherited(1) == ["inherited", 1], "the engine core is not sealed"
    assert installer.uninstall().active is False


def test_uninstall_restores_the_very_same_objects(stack: Stack) -> None:
    module = stack.load()
    before = raw_attributes(module)
    installer = stack.installer()
    installer.install()
    assert raw_attributes(module).keys() - before.keys() == {"Runner.added", "Runner.inherited"}
    assert {record.state for record in installer.status().patches} == {State.APPLIED}
    installer.uninstall()
    after = raw_attributes(module)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert isinstance(vars(module.Runner)["static"], staticmethod)
    assert {record.state for record in installer.status().patches} == {State.REVERTED}


def test_installing_again_changes_nothing_or_is_an_error(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer()
    first = installer.install(frames=4)
    wrapper = vars(module.Runner)["method"]
    assert installer.install().frames == first.frames == 4
    assert installer.install(Settings(frames=4)).active
    assert vars(module.Runner)["method"] is wrapper
    with pytest.raises(KStepError, match="frames=2 instead of 4"):
        installer.install(frames=2)
    assert installer.status().frames == 4


def test_a_second_installer_does_not_wrap_twice(stack: Stack) -> None:
    module = stack.load()
    stack.installer().install()
    second = stack.installer(stack.only("method")).install()
    assert second.state("method") is State.REFUSED
    assert not second.active
    assert isinstance(vars(module.Runner)["method"], wrapt.FunctionWrapper)


def test_the_environment_is_exported_and_restored_exactly(stack: Stack) -> None:
    stack.environ.update({"KSTEP_SHIM_NARROW": "off", "KSTEP_SHIM_DISABLE": "", "OTHER": "1"})
    before = dict(stack.environ)
    installer = stack.installer()
    installer.install(frames=4)
    assert stack.environ["KSTEP_SHIM"] == "1"
    assert stack.environ["KSTEP_SHIM_FRAMES"] == "4"
    assert stack.environ["KSTEP_SHIM_NARROW"] == "off"
    installer.uninstall()
    assert stack.environ == before


def test_a_variable_that_somebody_changed_since_is_left_alone(stack: Stack) -> None:
    installer = stack.installer()
    installer.install()
    stack.environ["KSTEP_SHIM_DEBUG"] = "1"
    installer.uninstall()
    assert stack.environ == {"KSTEP_SHIM_DEBUG": "1"}


def test_a_misspelt_variable_is_a_warning(stack: Stack, caplog: Any) -> None:
    stack.environ["KSTEP_SHIM_STRIKT"] = "1"
    assert stack.installer().install().active
    assert "KSTEP_SHIM_STRIKT is no variable" in caplog.text
    assert "did you mean KSTEP_SHIM_STRICT?" in caplog.text


def test_zero_vetoes(stack: Stack) -> None:
    module = stack.load()
    before = raw_attributes(module)
    stack.environ["KSTEP_SHIM"] = "0"
    report = stack.installer().install(frames=4)
    assert (report.active, report.frames) == (False, 1)
    assert "KSTEP_SHIM=0" in report.reason
    assert raw_attributes(module) == before
    assert stack.environ == {"KSTEP_SHIM": "0"}


def test_uninstall_without_install_is_harmless(stack: Stack) -> None:
    report = stack.installer().uninstall()
    assert (report.active, report.reason) == (False, "not installed")
    assert {record.reason for record in report.patches} == {"not installed"}


def test_a_process_that_promised_frames_is_not_undone(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer()
    installer.install(frames=4)
    installer.seal(Side.WORKER, "worker", 1)
    during, environ = raw_attributes(module), dict(stack.environ)
    report = installer.uninstall()
    assert report.active
    assert "restart" in report.reason
    assert raw_attributes(module) == during
    assert stack.environ == environ


def test_seal_imports_what_is_still_missing(stack: Stack) -> None:
    installer = stack.installer()
    installer.install(frames=1)
    assert installer.status().state("method") is State.PENDING
    installer.seal(Side.WORKER, "worker", 1)
    assert installer.status().state("method") is State.APPLIED
    assert stack.load().Runner().method(1) == ["method", 1, "wrapped"]


def test_seal_writes_the_report_of_this_process(stack: Stack, tmp_path: Path) -> None:
    stack.load()
    installer = stack.installer()
    installer.install(Settings(status_dir=str(tmp_path / "status")))
    installer.seal(Side.WORKER, "worker", 1, frames=4)
    (path,) = (tmp_path / "status").iterdir()
    assert path.name == f"{os.getpid()}.json"
    written = json.loads(path.read_text())
    assert written["active"] is True
    assert (written["role"], written["stage"]) == ("worker", 1)
    assert (written["frames"], written["source"]) == (4, "engine")


def test_seal_without_install_says_so(stack: Stack) -> None:
    with pytest.raises(KStepError, match="not installed"):
        stack.installer().seal(Side.WORKER, "worker", 1)
