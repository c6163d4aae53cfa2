"""Every deploy file that vllm-omni ships: stage 1 is given K, the other stages are left alone."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.overlays import FRAMES, resolve_all
from support.stages import Stages

_OMNI = find_spec("vllm_omni")
assert _OMNI is not None
assert _OMNI.origin is not None
OVERLAYS = sorted((Path(_OMNI.origin).parent / "deploy").glob("minicpmo_4_5*.yaml"))
PLATFORMS = ("npu", "cuda")
#: What follows from K or from synchronous scheduling in vLLM itself.
_FOLLOWS = (
    ".speculative_config",
    ".scheduler_config.async_scheduling",
    ".scheduler_config.scheduler_cls",
    ".scheduler_config.max_num_scheduled_tokens",
    ".compilation_config.cudagraph_capture_sizes",
    ".compilation_config.max_cudagraph_capture_size",
    ".parallel_config.worker_cls",
    ".parallel_config.disable_nccl_for_dp_synchronization",
)


def test_these_are_all_of_them() -> None:
    names = {"", "_2gpu", "_3gpu", "_8x4090", "_duplex"}
    names |= {f"_{part}_stage1_replicas" for part in ("3gpu", "4gpu", "8x4090")}
    assert {path.name for path in OVERLAYS} == {f"minicpmo_4_5{name}.yaml" for name in names}


@pytest.fixture(scope="module")
def resolved(stages: Stages) -> dict[bool, dict[tuple[str, str], Any]]:
    """Every file by platform section, with the shim armed and without it."""
    return {
        armed: stages.call(partial(resolve_all, OVERLAYS, PLATFORMS, armed))
        for armed in (True, False)
    }


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.stem)
def test_only_stage_1_changes(
    resolved: dict[bool, dict[tuple[str, str], Any]], path: Path, platform: str
) -> None:
    armed, stock = (resolved[shim][platform, path.name] for shim in (True, False))
    assert (armed["method"], armed["drafts"], armed["frames"]) == ("ngram", FRAMES - 1, FRAMES)
    assert (armed["async"], armed["scheduler"]) == (False, "OmniARScheduler")
    assert (stock["method"], stock["drafts"], stock["frames"]) == (None, None, 1)
    assert len(stock["stages"]) == 3
    for number in (0, 2):
        assert len(stock["stages"][number].splitlines()) > 400
        assert armed["stages"][number] == stock["stages"][number]
    lines = [set(one["stages"][1].splitlines()) for one in (armed, stock)]
    assert [line for line in lines[0] ^ lines[1] if not line.startswith(_FOLLOWS)] == []


def test_each_platform_section_counts(
    resolved: dict[bool, dict[tuple[str, str], Any]],
) -> None:
    pinned = ".cache_config.kv_cache_memory_bytes = 2147483648"
    talkers = {name: resolved[True][name, "minicpmo_4_5.yaml"]["stages"][1] for name in PLATFORMS}
    assert {name: pinned in text for name, text in talkers.items()} == {"npu": False, "cuda": True}
