"""Installing and uninstalling around the real stack, whose packages patch each other, too."""

from __future__ import annotations

import pytest
from support.fresh import run_script


@pytest.mark.parametrize("order", ["SI", "IS", pytest.param("SIS", marks=pytest.mark.long)])
def test_either_order_applies_everything_and_leaves_nothing(order: str) -> None:
    result = run_script("support.install_orders", order)
    assert set(result["states"].values()) == {"APPLIED"}, result
    assert result["wrapped"] > 20
    assert result["undone"] == "not installed"
    assert result["left"] == []
