"""The catalogue: alternatives by platform, lookup by name."""

from __future__ import annotations

import pytest
from support.stubs import Stack, patch, target

from kstep_shim import KStepError, Settings, catalog
from kstep_shim.declaration import Head, Kind, Patch, Side


def either(stack: Stack) -> Patch:
    """A patch with one target per platform, of which the NPU's is not installed."""
    method = target(stack.name, "Runner.method", "self", "value", "extra", platform="cuda")
    absent = target("kstep_stub_absent.runner", "Other.method", "self", platform="npu")
    shared = target(stack.name, "Runner.static", "value", "width", kind=Kind.STATICMETHOD)
    return patch("either", method, absent, shared)


def test_alternatives_are_targets_of_different_platforms(stack: Stack) -> None:
    module = stack.load()
    installer = stack.installer(*catalog.for_stack("cuda", Head.STOP_ROW, [either(stack)]))
    assert installer.install(frames=1).active
    installer.seal(Side.WORKER, "worker", 1)
    assert module.Runner().method(1) == ["method", 1, "wrapped"]
    assert module.Runner.static(1, 2) == ["static", 1, "wrapped"]


def test_the_alternative_of_the_platform_must_be_there(stack: Stack) -> None:
    stack.load()
    report = stack.installer(*catalog.for_stack("npu", Head.STOP_ROW, [either(stack)])).install()
    assert report.reason == "patch either: stub is not installed (no kstep_stub_absent.runner)"


def test_a_patch_without_a_target_on_a_platform_is_left_out(stack: Stack) -> None:
    only = patch("only", target(stack.name, "function", "value", platform="npu"))
    assert catalog.for_stack("npu", Head.STOP_ROW, [only]) == (only,)
    assert catalog.for_stack("cuda", Head.STOP_ROW, [only]) == ()


@pytest.mark.parametrize(("version", "name"), [("0.26.0rc1", "npu"), (None, "cuda")])
def test_vllm_ascend_makes_it_an_npu(
    monkeypatch: pytest.MonkeyPatch, version: str | None, name: str
) -> None:
    monkeypatch.setattr(catalog, "installed_version", lambda distribution: version)
    assert catalog.platform() == name


def test_every_target_counts_on_a_platform_that_exists() -> None:
    targets = [target for patch in catalog.every_patch() for target in patch.targets]
    assert {target.platform for target in targets} == {None, "npu", "cuda"}
    sides = {side for patch in catalog.for_stack("cuda", Head.STOP_ROW) for side in patch.sides}
    assert sides == set(Side), "no side goes without a patch where vllm-ascend is not installed"


def test_a_patch_that_does_not_exist_is_named_with_those_that_do(stack: Stack) -> None:
    with pytest.raises(KStepError, match=r"no patch called 'nothing'.*method, static") as caught:
        catalog.select(Settings(disable=frozenset({"nothing"})), stack.patches)
    assert caught.value.usage
