from __future__ import annotations

import pytest
import torch  # noqa: F401  (loads the soft NPU, without which the released packages do not import)

from kstep_shim.counters import counters


@pytest.fixture(autouse=True)
def fresh_counters():
    counters().clear()
    yield
    counters().clear()
