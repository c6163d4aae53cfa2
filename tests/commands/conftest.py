"""Running the command as an operator does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command() -> Command:
    """Run ``kstep-shim`` in a process of its own, without the caller's settings."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        dropped = ("KSTEP_SHIM", "VLLM_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        return subprocess.run(
            [sys.executable, "-m", "kstep_shim", *map(str, arguments)],
            env={**inherited, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
