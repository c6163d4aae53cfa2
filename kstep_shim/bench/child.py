"""One process of a bench: one K, all batches; its results go to a JSON file."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kstep_shim.bench.measure import device_times, serve
from kstep_shim.bench.talker import BenchJob, start

_STACK = ("torch", "vllm", "vllm-ascend", "vllm-omni")


def measure(job: BenchJob) -> dict[str, Any]:
    """Everything about one K."""
    engine = start(job)
    batches: dict[str, Any] = {}
    done = 0

    def progress(frames: int) -> None:
        sys.stdout.write(f"{done + frames}\n")
        sys.stdout.flush()

    for batch in job.batches:
        for _ in range(job.rounds):
            facts = serve(engine, batch, job, progress)
            done += batch * job.frames
        facts["device_ms"] = device_times(engine, batch, job.frames_per_step)
        batches[str(batch)] = facts
    return {
        "k": job.frames_per_step,
        "device": device_name(),
        "versions": _versions(),
        "counters": _counters(job),
        "batches": batches,
    }


def device_name() -> str:
    """What the frames ran on."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "soft NPU on " + (platform.processor() or platform.machine())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _STACK:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _counters(job: BenchJob) -> dict[str, int]:
    if job.frames_per_step == 1:
        return {}
    import kstep_shim

    return dict(kstep_shim.status().counters)


def main() -> int:
    """Run the job in the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path, help="JSON of a BenchJob")
    parser.add_argument("result", type=Path)
    arguments = parser.parse_args()
    described = json.loads(arguments.job.read_text())
    job = BenchJob(**{**described, "batches": tuple(described["batches"])})
    arguments.result.write_text(json.dumps(measure(job)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
