"""The four ways in: each alone arms the processes that matter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kstep_shim.launching import BOOTSTRAP

FRAMES = 8
#: Every plug-in of the stack, and not ours.
WITHOUT_OURS = "ascend,ascend_kv_connector,ascend_model,ascend_model_loader,kstep_shim_stand_ins"


@dataclass(frozen=True)
class Way:
    """How a program is started."""

    environ: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


_ON = {"KSTEP_SHIM": "1", "KSTEP_SHIM_FRAMES": str(FRAMES)}
_OURS_OUT = {"VLLM_PLUGINS": WITHOUT_OURS}
OFF = Way()
WAYS = {
    "plugin": Way(environ=_ON),
    "bootstrap": Way(environ={**_ON, **_OURS_OUT}, path=(str(BOOTSTRAP),)),
    "run": Way(prefix=(sys.executable, "-m", "kstep_shim", "run", "-k", str(FRAMES), "--")),
    "install": Way(options=("--install", str(FRAMES))),
}


def start(
    way: Way, program: Sequence[str], log: Path, path: Sequence[str] = (), **environ: str
) -> subprocess.Popen[str]:
    """Start ``python PROGRAM`` by one way; standard error goes to `log`."""
    dropped = ("KSTEP_SHIM", "VLLM_PLUGINS", "VLLM_ENABLE_V1_MULTIPROCESSING")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    inherited_path = inherited.get("PYTHONPATH", "")
    joined = os.pathsep.join(part for part in (*way.path, *path, inherited_path) if part)
    return subprocess.Popen(
        [*way.prefix, sys.executable, *program, *way.options],
        env={**inherited, **way.environ, "PYTHONPATH": joined, **environ},
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )
