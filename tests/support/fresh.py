"""Scripts of `support` in processes of their own, which have not imported the stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_script(module: str, *arguments: str, timeout: float = 240) -> Any:
    """Run ``python -m MODULE`` without settings of the shim; return the JSON of its last line."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    path = os.pathsep.join([str(Path(__file__).parents[1]), inherited.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**inherited, "PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
