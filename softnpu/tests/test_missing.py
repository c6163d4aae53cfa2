"""What is not implemented says so when it is called, and not before."""

from __future__ import annotations

import pytest
import torch
import torch_npu

import softnpu
from softnpu import counters


def test_a_missing_thing_can_be_looked_up_and_inherited_from() -> None:
    assert "torch_npu.npu_mla_prolog" in repr(torch_npu.npu_mla_prolog)
    assert torch_npu.npu_mla_prolog.out is not None
    assert torch_npu.npu_mla_prolog | None

    class Derived(torch_npu.Something):
        pass

    assert Derived.__bases__ == (object,)


def test_calling_it_raises_and_is_counted() -> None:
    try:
        with pytest.raises(NotImplementedError, match=r"torch_npu\.npu_mla_prolog\.out"):
            torch_npu.npu_mla_prolog.out(1)
        with pytest.raises(NotImplementedError, match=r"torch\.npu\.nonsense"):
            torch.npu.nonsense()
        assert softnpu.missing_calls() == {
            "torch_npu.npu_mla_prolog.out": 1,
            "torch.npu.nonsense": 1,
        }
    finally:
        counters.missing.clear()
