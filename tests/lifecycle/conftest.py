"""Playing a life cycle in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Play = Callable[..., Any]
_TESTS = Path(__file__).parents[1]
_PRELUDE = """
import json, os, sys
from pathlib import Path
from support.stubs import *
from kstep_shim import KStepError, Settings
from kstep_shim.declaration import Kind, Side, State

stack = Stack(Path(sys.argv[1]), name="kstep_stub_target")
installer = stack.installer()

def wrapped(found):
    '''Count our wrappers around an attribute.'''
    count = 0
    while found is not None:
        count += type(found).__name__ == "_ShimWrapper"
        found = getattr(found, "__wrapped__", None)
    return count
"""


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Run a script with a stub stack and an installer; return what it gives to `result`."""

    def run(script: str, *options: str, **environ: str) -> Any:
        code = _PRELUDE + textwrap.dedent(script) + "\nprint(json.dumps(result))\n"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
        path = os.pathsep.join([str(tmp_path), str(_TESTS), inherited.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, *options, "-c", code, str(tmp_path)],
            env={**inherited, **environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
