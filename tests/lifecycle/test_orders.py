"""Every short order of import, install and uninstall leaves what the last of them asks for."""

from __future__ import annotations

from itertools import product

import pytest

from .conftest import Play  # type: ignore[import-not-found]

_ORDERS = ["".join(word) for length in (1, 2, 3, 4) for word in product("ISU", repeat=length)]


@pytest.mark.parametrize("order", _ORDERS)
def test_order(play: Play, order: str) -> None:
    result = play(
        f"""
        installer = stack.installer(*[patch for patch in stack.patches if patch.name != "core"])
        steps = {{"I": stack.load, "S": lambda: installer.install(frames=1),
                  "U": installer.uninstall}}
        before = dict(stack.environ)
        for step in "{order}":
            steps[step]()
        report = installer.status()
        armed = report.active
        if armed:
            installer.seal(Side.WORKER, "worker", 1)
        module = stack.load()
        runner = vars(module.Runner)
        talk = module.Runner()
        result = {{
            "active": armed,
            "states": sorted({{record.state for record in report.patches}}),
            "wrapped": [wrapped(runner.get(name)) for name in ("method", "static", "inherited")],
            "added": "added" in runner,
            "static": isinstance(runner["static"], staticmethod),
            "calls": [talk.method(1), talk.static(1, 2), talk.inherited(1)],
            "environ": stack.environ == before,
        }}
        """
    )
    installed = order.rfind("S") > order.rfind("U")
    mark = ["wrapped"] if installed else []
    assert result["active"] is installed
    assert result["wrapped"] == [int(installed)] * 3
    assert result["added"] is installed
    assert result["static"] is True
    assert result["calls"] == [[name, 1, *mark] for name in ("method", "static", "inherited")]
    assert result["environ"] is not installed
    if installed:
        assert result["states"] == ["APPLIED" if "I" in order else "PENDING"]
    else:
        assert set(result["states"]) <= {"DISABLED", "REVERTED"}
