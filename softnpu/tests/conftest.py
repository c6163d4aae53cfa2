"""Environment of the tests, set before torch is imported, and the check on what is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.update(
    SOFTNPU="1",
    OMP_NUM_THREADS="1",
    VLLM_DISABLE_COMPILE_CACHE="1",
    VLLM_USE_AOT_COMPILE="0",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    HF_HUB_OFFLINE="1",
)
sys.path.insert(0, str(Path(__file__).parent))
if getattr(sys.modules.get("softnpu"), "__file__", None) is None:
    # Pytest names these modules after their folders, and its stand-in for the topmost one hides
    # the package.
    sys.modules.pop("softnpu", None)


@pytest.fixture(autouse=True)
def nothing_missing() -> Iterator[None]:
    """Fail a test which called something that is not implemented."""
    import softnpu

    assert softnpu.missing_calls() == {}
    yield
    assert softnpu.missing_calls() == {}
