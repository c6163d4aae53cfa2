"""The scheduler's name in an armed stage's configuration: an unarmed process cannot resolve it."""

from __future__ import annotations

import pytest

from kstep_shim import KStepError, promised


def test_an_unarmed_process_stops_with_the_way_out() -> None:
    with pytest.raises(KStepError, match=r"not armed: not installed\. Let KSTEP_SHIM=1") as error:
        _ = promised.OmniARScheduler
    assert "KSTEP_SHIM=0" in str(error.value)


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError):
        _ = promised.Other
