"""Field report 29 with Ray: what its executors copy to their workers decides, and all or none run.

Ray itself is not installed; the workers get what vLLM's own code would copy, and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ways import Way, start

from kstep_shim.launching import RAY_COPIES_ALL, launch_environment

_TESTS = str(Path(__file__).parents[1])


def bring_up(tmp_path: Path, executor: str, **environ: str) -> dict[str, Any]:
    log = tmp_path / "log"
    process = start(Way(), ["-m", "support.ray_worker", executor], log, path=[_TESTS], **environ)
    out, _ = process.communicate(timeout=280)
    assert process.returncode == 0, (out + log.read_text())[-4000:]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.long
def test_field_report_29_a_worker_that_ray_gave_no_switch(tmp_path: Path) -> None:
    found = bring_up(tmp_path, "v1", KSTEP_SHIM="1")
    assert (found["drafts"], found["worker_cls"]) == (7, "kstep_shim.promised.NPUARWorker")
    assert (found["code"], found["armed"]) == (1, False)
    assert "this process is not armed: not installed" in found["error"]
    assert "kstep-shim doctor" in found["error"]


@pytest.mark.long
def test_field_report_29_prefixes_bring_the_switch(tmp_path: Path) -> None:
    found = bring_up(tmp_path, "v1", **launch_environment({}, frames=4, ray=True))
    assert (found["code"], found["armed"], found["drafts"]) == (0, True, 3), found["error"]


@pytest.mark.long
def test_field_report_29_the_second_executor_copies_all(tmp_path: Path) -> None:
    found = bring_up(tmp_path, "v2", **launch_environment({}, frames=4))
    assert (found["code"], found["armed"], found["drafts"]) == (0, True, 3), found["error"]


@pytest.mark.long
def test_a_head_that_is_off_has_stock_workers(tmp_path: Path) -> None:
    found = bring_up(tmp_path, "v1")
    assert (found["code"], found["armed"], found["drafts"]) == (0, False, None), found["error"]
    assert found["worker_cls"].startswith("vllm_omni.")


def test_the_second_executor_is_the_default() -> None:
    # The doctor warns of the first one only.
    import vllm.envs

    assert RAY_COPIES_ALL in vllm.envs.environment_variables
    assert vllm.envs.VLLM_USE_RAY_V2_EXECUTOR_BACKEND is True
