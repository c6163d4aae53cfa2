"""Field reports 26 to 28 and 32 on the real stack."""

from __future__ import annotations

import itertools

import pytest
from support import compiled
from support.fresh import run_script
from support.stages import Stages

PACKAGES = ("vllm", "vllm_omni", "vllm_ascend")


def test_field_report_26_everything_patched_round_trips(stages: Stages) -> None:
    assert stages.call(compiled.pickles) == {"pickle": [], "cloudpickle": []}


@pytest.mark.long
@pytest.mark.parametrize("order", list(itertools.permutations(PACKAGES)), ids=",".join)
def test_field_report_27_every_order_of_imports(order: tuple[str, ...]) -> None:
    found = run_script("support.stack_imports", ",".join(order))
    assert found["errors"] == []
    assert set(found["states"].values()) == {"APPLIED"}


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_field_report_27_imports_from_four_threads() -> None:
    for _ in range(20):
        found = run_script("support.stack_imports", "storm")
        assert found["errors"] == []
        assert set(found["states"].values()) == {"APPLIED"}


def test_field_report_28_after_an_engine_was_built(stages: Stages) -> None:
    assert "was built before the shim came" in stages.call(compiled.too_late)


def test_field_report_32_the_compiler_sees_the_same(stages: Stages) -> None:
    stock, shimmed = stages.call(compiled.seen(1)), stages.call(compiled.seen(8))
    assert stock["breaks"] == shimmed["breaks"] == {}
    assert stock["graphs"] == shimmed["graphs"] > 0
    assert stock["calls"] == shimmed["calls"] > 0
    assert stock["frames"] == shimmed["frames"]
