"""Names in an armed stage's configuration that an unarmed process cannot resolve."""

from __future__ import annotations

import pytest

from kstep_shim import KStepError, promised


@pytest.mark.parametrize("name", promised.CLASSES)
def test_an_unarmed_process_stops_with_the_way_out(name: str) -> None:
    with pytest.raises(KStepError, match=r"not armed: not installed\. Let KSTEP_SHIM=1") as error:
        getattr(promised, name)
    assert "KSTEP_SHIM=0" in str(error.value)


@pytest.mark.parametrize(("name", "module"), promised.CLASSES.items())
def test_names_go_there_and_back(name: str, module: str) -> None:
    stock = f"{module}.{name}"
    assert promised.promised(stock) == f"kstep_shim.promised.{name}"
    assert promised.stock(promised.promised(stock)) == stock
    assert promised.promised("somebody.elses.Worker") == "somebody.elses.Worker"


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError):
        _ = promised.Other
