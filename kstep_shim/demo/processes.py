"""Running a part of a job in a fresh interpreter and hearing how far it is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from kstep_shim.errors import KStepError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def run_module(
    module: str,
    arguments: Sequence[object],
    *,
    what: str,
    log: Path,
    progress: Callable[[int], None],
    environment: Mapping[str, str],
) -> None:
    """Run ``python -m module`` to its end, without the shim's own variables.

    Parameters
    ----------
    what : str
        What to call the process in a message.
    log : Path
        Where its standard error goes.
    progress : callable
        Gets every number that it writes on a line of its own.
    environment : Mapping[str, str]
        Variables on top of this process's.

    Raises
    ------
    KStepError
        The process failed; the message ends with the last lines that it wrote.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**inherited, **environment},
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit():
                progress(int(line))
        code = process.wait()
    if code != 0:
        tail = "\n".join(line for line in log.read_text().splitlines() if "leaked" not in line)
        raise KStepError(f"{what} exited with {code}:\n{tail[-3000:]}")
