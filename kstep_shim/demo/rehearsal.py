"""Both sides of a rehearsal, in processes of their own, and what they add up to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kstep_shim.demo import outcome
from kstep_shim.demo.compare import Comparison
from kstep_shim.demo.stage import ENVIRONMENT
from kstep_shim.deployment import read_deployment
from kstep_shim.errors import KStepError
from kstep_shim.variables import SWITCH, VARIABLES

#: Printed with every rehearsal: it must not be taken for more than it is.
NOT_SHOWN: Final = (
    "speed: the soft NPU says nothing about time",
    "faults and numerics of the real device and its kernels",
    "stage 0, stage 2 and the real checkpoint: stage 1 ran alone, with small random weights, and "
    "what is compared is all that the vocoder stage receives",
    "several devices, replicas and tensor parallelism: one process, one device",
)
TIMEOUT_S: Final = 1800


@dataclass(frozen=True)
class Rehearsal:
    """What a deploy YAML does in miniature.

    Parameters
    ----------
    facts
        What the armed side decided: ``stages``, ``k``, ``source``, ``refusal``, ``warnings`` and,
        when stage 1 was brought up, ``came_up``.
    comparison
        K=1 against K, None where the head refuses and stage 1 would serve one frame per step.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None

    @property
    def engaged(self) -> bool:
        """Whether several frames ran in a step at all."""
        return self.comparison is not None and self.comparison.shimmed.engaged_steps > 0

    @property
    def identical(self) -> bool | None:
        """Whether both sides spoke the same; None when there was nothing to compare."""
        return None if self.comparison is None else not self.comparison.differences

    @property
    def good(self) -> bool:
        """Whether the deployment does what was asked for, exactly."""
        return bool(self.identical) and (self.engaged or self.facts["k"] == 1)

    def summary(self) -> dict[str, Any]:
        """What ``kstep-shim rehearse --json`` prints."""
        compared = {} if self.comparison is None else self.comparison.summary()
        return {
            "ok": self.good,
            **self.facts,
            "identical": self.identical,
            "engaged": compared.get("engaged", 0.0),
            "steps_engaged": compared.get("steps_engaged", 0),
            "declined": compared.get("declined", {}),
            "frames": compared.get("frames", 0),
            "steps_baseline": compared.get("steps_baseline", 0),
            "steps": compared.get("steps", 0),
            "differences": compared.get("differences", []),
            "not_shown": list(NOT_SHOWN),
        }


def run_rehearsal(deploy: Path, frames: int | None = None) -> Rehearsal:
    """Rehearse `deploy` with `frames` frames per step (what the environment says when None).

    Raises
    ------
    KStepError
        The file is not a deploy YAML of MiniCPM-o 4.5, or a process failed.
    """
    if read_deployment(deploy).talker is None:
        raise KStepError(
            f"{deploy} has no stage 1 of MiniCPM-o 4.5: there is nothing to rehearse", usage=True
        )
    armed = ["--shim", *([] if frames is None else ["--frames", str(frames)])]
    with tempfile.TemporaryDirectory(prefix="kstep-rehearsal-") as temporary:
        directory = Path(temporary)
        with ThreadPoolExecutor(2) as pool:
            stock = pool.submit(_side, deploy, directory / "k1.pt", [])
            shimmed = pool.submit(_side, deploy, directory / "shim.pt", armed)
            facts = shimmed.result()
            if facts["refusal"] is not None:
                stock.exception()  # Whether K=1 comes up in miniature is not the question then.
                return Rehearsal(facts)
            stock.result()
        results = [next(iter(outcome.load(directory / f"{n}.pt").values())) for n in ("k1", "shim")]
        return Rehearsal(facts, Comparison(facts["k"], *results))


def _side(deploy: Path, result: Path, options: list[str]) -> dict[str, Any]:
    # The settings count on the armed side only, and there a rehearsal asks for the shim itself.
    dropped = (SWITCH,) if "--shim" in options else VARIABLES
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [sys.executable, "-m", "kstep_shim.demo.rehearsal_child", deploy, result, *options],
        env={**inherited, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        side = "armed" if options else "K=1"
        raise KStepError(
            f"the {side} side of the rehearsal ended with {done.returncode}:\n"
            f"{(done.stdout + done.stderr)[-3000:]}"
        )
    facts: dict[str, Any] = json.loads(result.with_suffix(".json").read_text())
    return facts
