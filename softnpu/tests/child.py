"""Runs Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, *, timeout: float = 200, **environment: str) -> str:
    """Return what the code prints; ``environment`` adds to this process's."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
