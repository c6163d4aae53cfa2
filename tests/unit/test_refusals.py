"""What is refused, and what a refusal leaves in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import wrapt
from support.stubs import Stack, patch, raw_attributes, target

from kstep_shim import KStepError, Settings
from kstep_shim.declaration import Kind, Side, State


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
