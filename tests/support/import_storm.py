"""Threads that import a package of stubs, and install the shim meanwhile; one storm per process.

Run as a script: ``python -m support.import_storm DIRECTORY SHAPE``, DIRECTORY holding the package.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstep_shim.declaration import Kind, Patch
from kstep_shim.installer import Installer
from support.stubs import patch, target

PACKAGE = "kstep_storm"
#: Runner and scheduler import each other. No thread starts at the scheduler: threads that come from
#: both ends make Python itself raise now and then ("deadlock detected by _ModuleLock").
SOURCES = {
    "__init__": "",
    "base": """
class Base:
    def inherited(self, value):
        return ["inherited", value]
""",
    "runner": f"""
from {PACKAGE}.base import Base
import {PACKAGE}.scheduler
class Runner(Base):
    def method(self, value):
        return ["method", value]
""",
    "scheduler": f"""
import {PACKAGE}.runner
class Scheduler:
    def schedule(self, value):
        return ["schedule", value]
""",
    "sampler": f"""
from {PACKAGE}.base import Base
class Sampler(Base):
    @staticmethod
    def static(value):
        return ["static", value]
""",
}
STARTS = tuple(f"{PACKAGE}.{name}" for name in ("runner", "sampler", "base", "runner"))

Work = Callable[[], object]


def write_package(directory: Path) -> None:
    """Put the stubs where they can be imported from."""
    package = directory / PACKAGE
    package.mkdir()
    for name, source in SOURCES.items():
        (package / f"{name}.py").write_text(source)


def patches() -> tuple[Patch, ...]:
    """One patch per kind of target, spread over the modules."""
    runner, scheduler, sampler = (f"{PACKAGE}.{n}" for n in ("runner", "scheduler", "sampler"))
    return (
        patch("method", target(runner, "Runner.method", "self", "value")),
        patch("inherited", target(runner, "Runner.inherited", "self", "value")),
        patch("schedule", target(scheduler, "Scheduler.schedule", "self", "value")),
        patch("static", target(sampler, "Sampler.static", "value", kind=Kind.STATICMETHOD)),
    )


def _loads(installer: Installer) -> list[Work]:
    return [lambda name=name: importlib.import_module(name) for name in STARTS]  # type: ignore[misc]


def _installed_first(installer: Installer) -> list[Work]:
    installer.install(frames=1)
    return _loads(installer)


def _installed_meanwhile(installer: Installer) -> list[Work]:
    return [*_loads(installer), installer.install, installer.install]


def _installed_again_meanwhile(installer: Installer) -> list[Work]:
    def in_and_out() -> None:
        for _ in range(5):
            installer.install()
            installer.uninstall()
        installer.install()

    return [*_loads(installer), in_and_out]


def _others_hook_too(installer: Installer) -> list[Work]:
    """Another tool's hook imports modules that the shim waits for."""
    import wrapt

    hooked = f"{PACKAGE}.sampler"
    wrapt.register_post_import_hook(lambda _: importlib.import_module(STARTS[0]), hooked)
    return [*_loads(installer), installer.install]


SHAPES: dict[str, Callable[[Installer], list[Work]]] = {
    "installed first": _installed_first,
    "installed meanwhile": _installed_meanwhile,
    "installed again meanwhile": _installed_again_meanwhile,
    "others hook too": _others_hook_too,
}


def play(shape: str) -> dict[str, Any]:
    """Let the threads go at once; say what went wrong and what state they left."""
    sys.setswitchinterval(1e-5)
    installer = Installer(patches(), environ={}, tested=())
    steps = SHAPES[shape](installer)
    barrier, errors = threading.Barrier(len(steps)), []

    def work(step: Work) -> None:
        barrier.wait()
        try:
            step()
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [target.qualname for one in patches() for target in one.targets]
    places = [target.module for one in patches() for target in one.targets]
    return {
        "errors": errors,
        "states": {record.name: record.state.value for record in installer.status().patches},
        "layers": [_layers(*pair) for pair in zip(places, names, strict=True)],
    }


def _layers(module: str, qualname: str) -> int:
    owner, _, name = qualname.partition(".")
    found = vars(getattr(sys.modules[module], owner))[name]
    count = 0
    while found is not None:
        count += type(found).__name__ == "_ShimWrapper"
        found = getattr(found, "__wrapped__", None)
    return count


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    sys.stdout.write(json.dumps(play(sys.argv[2])) + "\n")
