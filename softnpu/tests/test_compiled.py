"""What stands for a compiled extension which is not installed."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest
import torch
import torch_npu

import softnpu
from softnpu import counters


def _is_installed() -> bool:
    spec = importlib.util.find_spec("vllm_ascend")
    assert spec is not None
    assert spec.origin is not None
    return any(Path(spec.origin).parent.glob("vllm_ascend_C*.so"))


class ReleasedExtension:
    def test_it_does_not_load(self) -> None:
        with pytest.raises(ImportError):
            importlib.import_module("vllm_ascend.vllm_ascend_C")


class StandIn:
    @pytest.fixture(autouse=True)
    def _extension(self) -> None:
        importlib.import_module("vllm_ascend.vllm_ascend_C")

    def test_add_rms_norm_bias(self) -> None:
        x, y, gamma, beta = (torch.randn(5, 12) for _ in range(4))
        op = torch.ops._C_ascend.npu_add_rms_norm_bias
        plain = torch_npu.npu_add_rms_norm(x, y, gamma[0], 1e-6)
        for got, expected in zip(op(x, y, gamma[0], None, 1e-6), plain, strict=True):
            assert torch.equal(got, expected)
        assert torch.equal(op(x, y, gamma[0], beta[0])[0], plain[0] + beta[0])
        alone = torch.cat([op(x[i : i + 1], y[i : i + 1], gamma[0], beta[0])[0] for i in range(5)])
        assert torch.equal(alone, op(x, y, gamma[0], beta[0])[0])

    def test_its_shapes(self) -> None:
        x = torch.empty(3, 8, device="meta")
        out = torch.ops._C_ascend.npu_add_rms_norm_bias(x, x, x[0], None, 1e-6)
        assert [part.shape[-1] for part in out] == [8, 1, 8]

    def test_the_one_device_is_the_first(self) -> None:
        assert torch.ops._C_ascend.get_physical_device_id(0) == 0

    def test_what_is_only_declared_is_refused_and_counted(self) -> None:
        x = torch.ones(2, 2)
        for name in ("bgmv_expand", "sgmv_expand", "device_print", "device_print_tensor"):
            assert hasattr(torch.ops._C_ascend, name)
        try:
            with pytest.raises(NotImplementedError, match="bgmv_expand"):
                torch.ops._C_ascend.bgmv_expand(x, x, x, x, 0, 2)
            assert softnpu.missing_calls() == {"_C_ascend.bgmv_expand": 1}
        finally:
            counters.missing.clear()

    def test_linear_attention_is_missing(self) -> None:
        module = importlib.import_module("fla_npu.ops.ascendc")
        assert "fla_npu.ops.ascendc.recurrent_kda" in repr(module.recurrent_kda)

    def test_there_is_no_allocator(self) -> None:
        with pytest.raises(ImportError):
            from vllm_ascend.vllm_ascend_C import init_module  # noqa: F401


#: Either a release brings its extension, or something stands for it.
TestExtension = ReleasedExtension if _is_installed() else StandIn
