"""What every GPU test needs: a CUDA device, and stages in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: The stack on the soft NPU is switched on by tests/conftest.py; a GPU is served without it.
_ENVIRONMENT = {
    "SOFTNPU": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "4",
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these tests, and skip them where there is no GPU."""
    mine = [item for item in items if ROOT / "tests" / "gpu" in item.path.parents]
    reason = _missing() if mine else None
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        item.add_marker(pytest.mark.timeout(900))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> str | None:
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    ask = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **_ENVIRONMENT}, check=False
    )
    return "no CUDA device" if ask.returncode else None


class Stages:
    """Runs scripts on the GPU, each once, and keeps what they wrote."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._facts: dict[tuple[str, ...], Any] = {}

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python with `command`."""
        return subprocess.run(
            [sys.executable, *command],
            env={**os.environ, **_ENVIRONMENT, **environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def facts(self, frames: int, *options: str) -> Any:
        """What ``support.real_talker`` wrote for this K."""
        key = (str(frames), *options)
        if key not in self._facts:
            out = self._directory / f"{'-'.join(key)}.json"
            arguments = ("-m", "support.real_talker", "--frames", str(frames), "--out", str(out))
            done = self.run(*arguments, *options)
            assert done.returncode == 0, done.stderr[-3000:]
            self._facts[key] = json.loads(out.read_text())
        return self._facts[key]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("gpu"))
