"""Run a scenario twice, K=1 without the shim and K with it, each in a process of its own."""

from __future__ import annotations

import pickle
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstep_shim.demo import outcome
from kstep_shim.demo.processes import run_module
from kstep_shim.demo.stage import ENVIRONMENT
from kstep_shim.errors import KStepError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstep_shim.demo.outcome import Outcome
    from kstep_shim.demo.scenario import Scenario, StageShape

BASELINE, SHIMMED = "k1", "shim"
_DROPPED = "drafts_dropped: "


@dataclass(frozen=True)
class Comparison:
    """K=1 against K, for one scenario."""

    frames_per_step: int
    baseline: Outcome
    shimmed: Outcome

    @property
    def differences(self) -> list[str]:
        return outcome.differences(self.baseline, self.shimmed)

    def declined(self) -> dict[str, int]:
        """Decode steps that ran one frame, by reason."""
        return {
            name.removeprefix(_DROPPED): count
            for name, count in self.shimmed.counters.items()
            if name.startswith(_DROPPED)
        }

    def summary(self) -> dict[str, Any]:
        """What ``kstep-shim demo --json`` prints."""
        return {
            "k": self.frames_per_step,
            "requests": len(self.baseline.requests),
            "frames": self.baseline.frames,
            "identical": not self.differences,
            "steps_baseline": len([s for s in self.baseline.steps if s.widths]),
            "steps": len([s for s in self.shimmed.steps if s.widths]),
            "host_ms_per_frame_baseline": round(self.baseline.host_ms_per_frame, 3),
            "host_ms_per_frame": round(self.shimmed.host_ms_per_frame, 3),
            "engaged": round(self.shimmed.engaged_steps / max(1, self.shimmed.decode_steps), 4),
            "steps_engaged": self.shimmed.engaged_steps,
            "declined": self.declined(),
            "differences": self.differences,
        }


def run_process(
    shape: StageShape, scenario: Scenario, result: Path, progress: Callable[[int], None]
) -> None:
    """Serve `scenario` in a fresh interpreter; `progress` hears the frames made so far.

    Raises
    ------
    KStepError
        The process failed; the message ends with the last lines that it wrote.
    """
    job = result.with_suffix(".job")
    job.write_bytes(pickle.dumps((shape, (scenario,))))
    run_module(
        "kstep_shim.demo.child",
        [job, result],
        what=f"the K={shape.frames} process",
        log=result.with_suffix(".log"),
        progress=progress,
        environment=ENVIRONMENT,
    )


def run_both(
    baseline: StageShape,
    shimmed: StageShape,
    scenario: Scenario,
    progress: Callable[[str, int], None],
    directory: Path | None = None,
) -> Comparison:
    """Run both processes at the same time and compare what they wrote into `directory`."""
    with tempfile.TemporaryDirectory(prefix="kstep-demo-") as temporary:
        target = Path(temporary) if directory is None else directory
        target.mkdir(parents=True, exist_ok=True)
        failures: list[BaseException] = []

        def run(name: str, shape: StageShape) -> None:
            try:
                run_process(
                    shape, scenario, target / f"{name}.pt", lambda done: progress(name, done)
                )
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=run, args=(BASELINE, baseline)),
            threading.Thread(target=run, args=(SHIMMED, shimmed)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return compare_files(target, shimmed.frames)


def compare_files(directory: Path, frames: int) -> Comparison:
    """Compare the two result files of an earlier run.

    Raises
    ------
    KStepError
        A file is missing.
    """
    results = []
    for name in (BASELINE, SHIMMED):
        path = directory / f"{name}.pt"
        if not path.exists():
            raise KStepError(
                f"{path} does not exist: run the demo with --keep {directory} first", usage=True
            )
        results.append(next(iter(outcome.load(path).values())))
    return Comparison(frames, *results)
