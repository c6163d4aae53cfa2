"""Kill the engine process while it serves, and say what its client sees and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from kstep_shim.demo.scenario import RequestSpec, StageShape
from kstep_shim.demo.spawned import SpawnedStage, engine_request, stage_arguments
from kstep_shim.demo.stage import prepare_environment


def children() -> int:
    """How many processes of ours still run."""
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    fields = [text.rpartition(")")[2].split() for text in stats]
    return sum(1 for state, parent, *_ in fields if parent == str(os.getpid()) and state != "Z")


async def kill_it(stage: SpawnedStage) -> dict[str, object]:
    client = stage.connect()
    (process,) = stage.processes
    for index in range(2):
        await client.add_request_async(engine_request(RequestSpec(f"killed-{index}")))
    await asyncio.wait_for(client.get_output_async(), 120)
    os.kill(process.pid, signal.SIGKILL)
    error = None
    end = time.monotonic() + 60
    while error is None and time.monotonic() < end:
        try:
            await asyncio.wait_for(client.get_output_async(), 60)
        except Exception as found:
            error = type(found).__name__
    client.shutdown()
    process.join(30)
    return {"error": error, "exitcode": process.exitcode}


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    prepare_environment()
    import torch  # noqa: F401

    if sys.argv[2:]:
        import kstep_shim

        kstep_shim.install(frames=int(sys.argv[-1]))
    stage = SpawnedStage(stage_arguments(StageShape(shim=True), Path(sys.argv[1])))
    found = asyncio.run(kill_it(stage))
    found["left"] = children()
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
