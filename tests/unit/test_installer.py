"""What install, seal and uninstall do to a target, and what they refuse to do."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import wrapt
from support.stubs import Stack, note, patch, target

from kstep_shim import KStepError, Settings
from kstep_shim.declaration import Kind, Side, State


def raw_attributes(module: Any) -> dict[str, Any]:
    """Return the raw objects of a stub module that the standard patches touch."""
    found = {f"Runner.{name}": value for name, value in vars(module.Runner).items()}
    found |= {f"Base.{name}": value for name, value in vars(module.Base).items()}
    return found | {"function": module.function}


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


def test_somebody_elses_wrapper_on_top_is_respected(stack: Stack) -> None:
    module = stack.load()
    original = vars(module.Runner)["method"]
    installer = stack.installer()
    installer.install(frames=1)
    ours = vars(module.Runner)["method"]

    @functools.wraps(module.Runner.method)
    def profiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        return [*ours.__get__(self)(*args, **kwargs), "profiled"]

    module.Runner.method = profiled
    during = raw_attributes(module)
    report = installer.uninstall()
    assert report.active
    assert "Runner.method was changed by function" in report.reason
    assert raw_attributes(module) == during
    installer.seal(Side.WORKER, "worker", 1)
    assert module.Runner().method(1) == ["method", 1, "wrapped", "profiled"]
    module.Runner.method = ours
    assert not installer.uninstall().active
    assert vars(module.Runner)["method"] is original


def test_wrapt_wrappers_below_and_above_are_seen_through(stack: Stack) -> None:
    module = stack.load()
    for name in ("method", "static"):
        wrapt.wrap_function_wrapper(module, f"Runner.{name}", note)
    installer = stack.installer()
    assert installer.install(frames=1).active
    for name in ("method", "static"):
        wrapt.wrap_function_wrapper(module, f"Runner.{name}", note)
    installer.seal(Side.WORKER, "worker", 1)
    assert module.Runner().method(1) == ["method", 1, *["wrapped"] * 3]
    assert module.Runner.static(1, 2) == ["static", 1, *["wrapped"] * 3]
    assert not [why for why in installer.status().patches if why.state is not State.APPLIED]


def test_a_replaced_target_stops_the_seal(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer()
    installer.install()
    module.Runner.method = lambda self, value, extra=None: ["replaced"]
    assert installer.status().state("method") is State.DISPLACED
    assert not installer.status().active
    with pytest.raises(KStepError, match=r"patch method is displaced: .*Runner\.method") as caught:
        installer.seal(Side.WORKER, "worker", 1)
    assert str(caught.value).count("patch ") == 1
    assert module.Runner.static(1, 2) == ["static", 1], "no gate of that side opens"


def test_a_replaced_base_method_is_wrapped_anew_at_the_seal(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer(stack.only("inherited"))
    installer.install(frames=1)

    def inherited(self: Any, value: Any) -> list[Any]:
        return ["patched by the vendor", value]

    module.Base.inherited = inherited
    assert installer.status().state("inherited") is State.DISPLACED
    installer.seal(Side.WORKER, "worker", 1)
    assert module.Runner().inherited(1) == ["patched by the vendor", 1, "wrapped"]
    installer.uninstall()
    assert "inherited" not in vars(module.Runner)


def test_a_reloaded_module_is_reported(stack: Stack) -> None:
    module = stack.load()
    old = module.Runner
    installer = stack.installer(stack.only("method"), stack.only("static"))
    installer.install()
    importlib.reload(module)
    record = next(record for record in installer.status().patches if record.name == "method")
    assert record.state is State.DISPLACED
    assert "names another object" in record.reason
    assert not installer.uninstall().active
    assert not isinstance(vars(old)["method"], wrapt.FunctionWrapper)


@pytest.mark.parametrize(
    ("old", "new", "name", "symbol"),
    [
        ("def method", "def renamed", "method", "Runner.method does not exist"),
        ("class Runner", "class Moved", "method", "Runner does not exist"),
        ("*, extra=None", "*, extra=None, more=0", "method", "takes (self, value, extra, more)"),
        ("def method(self, ", "@staticmethod\n    def method(", "method", "is a static method"),
        ("    @staticmethod\n", "", "static", "is not a static method"),
        ("def method", "added = 1\n    def method", "added", "added exists already"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_changed_target_turns_the_whole_shim_off(
    tmp_path: Path, stack: Stack, old: str, new: str, name: str, symbol: str, late: bool
) -> None:
    changed = Stack(tmp_path, source=stack.source.replace(old, new))
    installer = changed.installer(changed.only(name), changed.only("static"))
    if late:  # As in a child process, which does not read the files first.
        changed.load()
    report = installer.install()
    assert (report.active, report.frames) == (False, 1)
    assert symbol in report.reason
    module = changed.load()
    assert not any(isinstance(found, wrapt.FunctionWrapper) for found in vars(module).values())
    assert changed.environ == {}
    with pytest.raises(KStepError, match="not possible"):
        installer.seal(Side.WORKER, "worker", 1)


def test_a_refusal_keeps_only_the_decision_points(stack: Stack) -> None:
    stack.environ["KSTEP_SHIM_DISABLE"] = "method"
    installer = stack.installer()
    report = installer.install()
    assert "required patch method" in report.reason
    module = stack.load()
    assert module.Runner().wrapped
    assert not isinstance(vars(module.Runner)["static"].__wrapped__, wrapt.FunctionWrapper)
    assert not hasattr(module.Runner, "added")
    assert installer.status().state("runner") is State.APPLIED
    assert installer.status().state("static") is State.DISABLED
    installer.uninstall()
    assert not hasattr(module.Runner(), "wrapped")


def test_an_optional_patch_may_be_left_out(stack: Stack) -> None:
    stack.load()
    report = stack.installer().install(Settings(disable=frozenset({"function"})))
    assert report.active
    assert report.state("function") is State.DISABLED
    with pytest.raises(KStepError, match=r"no patch called 'fanction'.*function"):
        stack.installer().install(Settings(disable=frozenset({"fanction"})))


def test_strict_makes_a_refusal_an_error_and_leaves_nothing(stack: Stack) -> None:
    module = stack.load()
    before = raw_attributes(module)
    module.Runner.added = property(repr)
    installer = stack.installer()
    with pytest.raises(KStepError, match=r"STRICT.*added exists already"):
        installer.install(Settings(strict=True))
    del module.Runner.added
    assert raw_attributes(module) == before
    assert stack.environ == {}
    assert not installer.installed


def test_withdraw_takes_a_running_shim_back(stack: Stack, caplog: Any) -> None:
    module = stack.load()
    installer = stack.installer()
    installer.install(frames=4)
    report = installer.withdraw("K=4 exceeds codec_chunk_frames=2")
    assert (report.active, report.reason) == (False, "K=4 exceeds codec_chunk_frames=2")
    assert module.Runner().wrapped
    assert not hasattr(module.Runner, "added")
    assert stack.environ == {}


def test_seal_imports_what_is_still_missing(stack: Stack) -> None:
    installer = stack.installer()
    installer.install(frames=1)
    assert installer.status().state("method") is State.PENDING
    installer.seal(Side.WORKER, "worker", 1)
    assert installer.status().state("method") is State.APPLIED
    assert stack.load().Runner().method(1) == ["method", 1, "wrapped"]


def test_a_copy_in_a_subclass_is_too_late(stack: Stack) -> None:
    module = stack.load()
    subclass = type("Copier", (module.Runner,), {"alias": module.Runner.method})
    report = stack.installer(stack.only("method")).install()
    assert "was copied by" in report.reason
    assert subclass.__name__ in report.reason


def test_a_runner_that_exists_already_is_too_late(stack: Stack) -> None:
    runner = stack.load().Runner()
    assert "a Runner was built before" in stack.installer().install().reason
    del runner
    assert stack.installer(stack.only("function")).install().active


def test_what_is_held_from_an_earlier_installation_stays_inert(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer(stack.only("method"))
    installer.install(frames=1)
    runner = module.Runner()
    held = runner.method
    installer.uninstall()
    installer.install(frames=1)
    installer.seal(Side.WORKER, "worker", 1)
    assert held(1) == ["method", 1]
    assert runner.method(1) == ["method", 1, "wrapped"]


def test_wrapped_objects_are_pickled_by_name(stack: Stack) -> None:
    module = stack.load()
    stack.installer().install()
    runner = module.Runner()
    again = pickle.loads(pickle.dumps(runner.method))
    assert again(1) == ["method", 1]
    for found in (module.Runner, module.Runner.method, module.Runner.static, module.function):
        assert pickle.loads(pickle.dumps(found)) == found
    assert pickle.loads(pickle.dumps(runner)).wrapped


def test_patched_callables_still_introspect(stack: Stack) -> None:
    module = stack.load()
    before = inspect.signature(module.Runner.method)
    stack.installer().install()
    assert inspect.signature(module.Runner.method) == before
    assert inspect.isfunction(module.Runner.method)
    assert module.Runner.method.__qualname__ == "Runner.method"


def test_a_hook_never_raises_into_an_import(stack: Stack) -> None:
    class Difficult(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise RuntimeError("not today")

    stack.source += "\nimport builtins\nclass Odd(metaclass=builtins.Difficult):\n"
    stack.source += "    def method(self):\n        return []\n"
    stack.__post_init__()
    odd = patch("odd", target(stack.name, "Odd.method", "self"))
    installer = stack.installer(odd)
    assert installer.install().active
    import builtins

    builtins.Difficult = Difficult  # type: ignore[attr-defined]
    try:
        stack.load()
    finally:
        del builtins.Difficult  # type: ignore[attr-defined]
    assert installer.status().state("odd") is State.REFUSED
    assert "not today" in installer.status().reason


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


def test_a_method_that_is_only_relied_on_is_guarded_and_left_alone(stack: Stack) -> None:
    relied = target(
        stack.name, "Runner.inherited", "self", "value", kind=Kind.RELIED_ON, wrapper=None
    )
    installer = stack.installer(patch("relied", relied))
    assert installer.install(frames=4).state("relied") is State.PENDING
    module = stack.load()
    assert installer.status().state("relied") is State.APPLIED
    assert "inherited" not in vars(module.Runner)
    original = module.Base.inherited

    def around(self: object, value: object) -> object:
        return original(self, value)

    module.Base.inherited = around
    assert installer.status().state("relied") is State.APPLIED
    module.Base.inherited = lambda self, value, more: None
    record = installer.status().patches[0]
    assert record.state is State.DISPLACED
    assert "takes (self, value, more) instead of (self, value)" in record.reason
    assert installer.uninstall().state("relied") is State.REVERTED


def test_a_method_relied_on_that_is_gone_refuses(stack: Stack) -> None:
    gone = target(stack.name, "Runner.gone", "self", kind=Kind.RELIED_ON, wrapper=None)
    installer = stack.installer(patch("relied", gone))
    stack.load()
    report = installer.install(frames=4)
    assert report.active is False
    assert "Runner.gone does not exist" in report.reason
