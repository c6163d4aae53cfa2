"""Other people's hands on the same targets: wrappers, replacements, reloads, pickles."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
from typing import Any

import pytest
import wrapt
from support.stubs import Stack, note, raw_attributes

from kstep_shim import KStepError
from kstep_shim.declaration import Side, State


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
