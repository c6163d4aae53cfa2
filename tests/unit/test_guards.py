"""Versions, carriers, and the declared patches against the released files."""

from __future__ import annotations

import gc
import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stubs import Stack, target

from kstep_shim import Settings, _sources, catalog, guards
from kstep_shim.declaration import Kind, Patch, State

STACK = dict(guards.TESTED_STACKS[0])


def fake_versions(monkeypatch: pytest.MonkeyPatch, **known: str) -> None:
    """Of the stack's distributions those that are not `known` are not installed."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in STACK and name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name] if name in known else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize("version", ["0.26.0", "0.26.0+cpu", "0.26.0+g1234567"])
def test_builds_of_a_tested_version_are_accepted(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_versions(monkeypatch, **{**STACK, "vllm": version})
    assert guards.version_problem() is None


def test_each_tested_stack_is_accepted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for stack in guards.TESTED_STACKS:
        with monkeypatch.context() as patched:
            fake_versions(patched, **stack)
            assert guards.version_problem() is None
    fake_versions(monkeypatch, **{**STACK, "vllm-omni": guards.TESTED_STACKS[-1]["vllm-omni"]})
    assert guards.untested() == ("vllm-omni",)


def test_a_stack_that_was_tested_on_npus_only_is_refused_on_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_versions(monkeypatch, **{"vllm": "0.30.0", "vllm-omni": "0.30.0"})
    assert guards.untested() == ("vllm-ascend",)
    problem = guards.version_problem()
    assert problem is not None
    assert "vllm-ascend left out" in problem
    assert "KSTEP_SHIM_ALLOW_UNTESTED" in problem


@pytest.mark.parametrize("there", [{}, {"vllm": "0.30.0"}, {"vllm-omni": "0.26.0"}])
def test_what_is_not_installed_is_for_the_targets_to_say(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, str]
) -> None:
    fake_versions(monkeypatch, **there)
    assert guards.version_problem() is None


def test_releases_that_do_not_fit_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_versions(
        monkeypatch, **{"vllm": "0.28.0", "vllm-ascend": "0.28.0rc1", "vllm-omni": "0.28.0"}
    )
    problem = guards.version_problem()
    assert problem is not None
    assert "vllm-omni 0.28.0 (it and vllm-ascend 0.28.0rc1 do not fit each other" in problem


@pytest.mark.parametrize("version", ["0.26.1", "0.27.0", "0.26.0rc1", "0.1.dev1+g1234", "odd"])
def test_other_versions_are_named_with_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_versions(monkeypatch, **{**STACK, "vllm-omni": version})
    problem = guards.version_problem()
    assert problem is not None
    for part in (f"vllm-omni {version}", "0.26.0", "KSTEP_SHIM_ALLOW_UNTESTED", "KSTEP_SHIM=0"):
        assert part in problem


def test_an_untested_version_turns_the_shim_off_unless_allowed(stack: Stack) -> None:
    stack.load()
    from kstep_shim.installer import Installer

    tested = ({"packaging": "0.0.1"},)
    for allow in (False, True):
        installer = Installer(stack.patches, environ={}, tested=tested)
        report = installer.install(Settings(allow_untested=allow))
        assert report.active is allow
        installer.uninstall()
    assert "packaging" in Installer(stack.patches, environ={}, tested=tested).install().reason


@pytest.mark.parametrize("version", ["2.2.0", "1.16.0", "3.0.0"])
def test_wrapt_versions_that_are_refused(version: str) -> None:
    assert f"wrapt {version}" in (guards.wrapt_problem(version) or "")


@pytest.mark.parametrize("version", ["1.17.0", "1.17.3", "2.0.0", "2.2.1", "2.5.2"])
def test_wrapt_versions_that_work(version: str) -> None:
    assert guards.wrapt_problem(version) is None


def test_with_a_refused_wrapt_nothing_is_patched(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wrapt

    monkeypatch.setattr(wrapt, "__version__", "2.2.0")
    module = stack.load()
    before = dict(vars(module.Runner))
    report = stack.installer().install()
    assert "wrapt 2.2.0" in report.reason
    assert dict(vars(module.Runner)) == before


class TestCarrier:
    """How a spawned process gets armed."""

    def test_the_installed_entry_point_is_enough(self) -> None:
        assert guards.carrier_problem({}) is None
        assert guards.carrier_problem({"VLLM_PLUGINS": "ascend,kstep_shim"}) is None

    @pytest.mark.parametrize("allowed", ["", "ascend"])
    def test_a_filter_is_a_problem(self, allowed: str) -> None:
        problem = guards.carrier_problem({"VLLM_PLUGINS": allowed})
        assert problem is not None
        assert "VLLM_PLUGINS" in problem
        assert "kstep_shim" in problem

    def test_the_bootstrap_directory_is_enough(self, tmp_path: Path) -> None:
        environ = {"VLLM_PLUGINS": "ascend", "PYTHONPATH": f"/elsewhere:{tmp_path}"}
        assert guards.carrier_problem(environ, bootstrap=tmp_path) is None

    def test_nothing_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
        assert "nothing would arm stage 1" in (guards.carrier_problem({}) or "")


@pytest.mark.parametrize("patch", catalog.patches(), ids=lambda patch: patch.name)
@pytest.mark.stack
def test_the_declared_patches_fit_the_released_files(patch: Patch) -> None:
    for declared in patch.targets:
        assert guards.static_problem(declared) is None


@pytest.mark.stack
def test_the_catalogue_is_read_without_the_stack() -> None:
    code = (
        "import sys; from kstep_shim import catalog, guards;"
        "found = [guards.static_patch_problem(patch) for patch in catalog.PATCHES];"
        "assert not any(found), found;"
        "print(sorted({'torch', 'vllm', 'vllm_omni', 'vllm_ascend', 'wrapt'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


_SOURCE = """
import typing
from kstep_stub_elsewhere import Imported
if typing.TYPE_CHECKING:
    pass
else:
    class Guarded:
        def method(self, a, /, b, *args, c, **kwargs): ...
class Base:
    def inherited(self, value): ...
    def shared(self, value): ...
class Middle(Base):
    assigned = print
class Leaf(Middle, typing.Generic[typing.TypeVar("T")]):
    @property
    def computed(self): ...
    async def later(self): ...
    class Inner:
        def method(self): ...
class Mixed(Imported):
    pass
class Plain(Base):
    pass
"""


@pytest.mark.parametrize(
    ("qualname", "parameters", "problem"),
    [
        ("Guarded.method", "self a b c", None),
        ("Guarded.method", "self a b", "takes (self, a, b, c) instead of (self, a, b)"),
        ("Leaf.inherited", "self value", None),
        ("Leaf.inherited", "self", None),
        ("Plain.inherited", "self value", None),
        ("Plain.inherited", "self", "takes (self, value)"),
        ("Plain.gone", "self", "Plain.gone does not exist"),
        ("Leaf.assigned", "self anything", None),
        ("Leaf.later", "self", None),
        ("Leaf.computed", "self", "not a plain function"),
        ("Leaf.Inner.method", "self", None),
        ("Leaf.Outer.method", "self", "Leaf.Outer does not exist"),
        ("Mixed.unknown", "self", None),
        ("Imported.method", "self", None),
        ("nothing", "value", "nothing does not exist"),
    ],
)
def test_static_problem(
    tmp_path: Path, stack: Stack, qualname: str, parameters: str, problem: str | None
) -> None:
    other = Stack(tmp_path, source=_SOURCE)
    found = guards.static_problem(target(other.name, qualname, *parameters.split()))
    assert found is None if problem is None else problem in (found or "")


def test_static_problem_follows_imports_of_bases(tmp_path: Path, stack: Stack) -> None:
    export = Stack(tmp_path, source=f"from {stack.name} import Runner as Exported\n")
    child = Stack(
        tmp_path, source=f"from {export.name} import Exported\nclass Child(Exported): pass\n"
    )
    method = ("self", "value", "extra")
    assert guards.static_problem(target(child.name, "Child.method", *method)) is None
    wrong = guards.static_problem(target(child.name, "Child.method", "self"))
    assert "takes (self, value, extra)" in (wrong or "")
    static = target(child.name, "Child.static", "value", "width", kind=Kind.STATICMETHOD)
    assert guards.static_problem(static) is None


def test_what_was_read_is_not_kept(stack: Stack) -> None:
    # A head process serves for months, and syntax trees take tens of megabytes.
    stack.load()
    assert stack.installer().install().active
    assert _sources._parse_file.cache_info().currsize == 0
    assert gc.isenabled()


def test_a_file_that_cannot_be_parsed_is_a_problem(tmp_path: Path, stack: Stack) -> None:
    other = Stack(tmp_path, source="class Runner(:\n")
    found = guards.static_problem(target(other.name, "Runner.method", "self"))
    assert "cannot be read" in (found or "")
    report: Any = other.installer(other.only("method")).install()
    assert report.state("method") is State.DISABLED
