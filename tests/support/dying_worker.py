"""A worker that is killed inside a step, by a plug-in of vLLM, and what the stage's client sees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.demo.scenario import RequestSpec, StageShape
from kstep_shim.demo.spawned import SpawnedStage, Spoken, _collect, engine_request, stage_arguments
from kstep_shim.demo.stage import prepare_environment
from support.killed_stage import children

#: The forward of the Talker, counted from the first request's, in which its process dies.
VARIABLE = "KSTEP_TEST_DIE_IN_FORWARD"
_PLUGIN = "kstep_dying_worker"
_INPUTS = ("input_ids", "positions", "intermediate_tensors", "inputs_embeds")
_forwards: list[int] = []
_installed: list[Any] = []


def write_plugin(directory: Path) -> Path:
    """Write the metadata that makes `register` a plug-in where `directory` is on the path."""
    metadata = directory / f"{_PLUGIN}-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_PLUGIN}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{_PLUGIN} = {__name__}:register\n"
    )
    return directory


def register() -> None:
    """What vLLM calls in every process; only a worker gets as far as a forward."""
    from kstep_shim.installer import Installer
    from kstep_shim.settings import Settings

    if not _installed:
        _installed.append(Installer(_PATCHES, environ={}, tested=()))
        _installed[0].install(Settings(frames=1))


def _begin(wrapped: Callable[..., Any], talker: Any, args: Any, kwargs: Any) -> Any:
    if not _forwards:
        _forwards.append(0)
    return wrapped(*args, **kwargs)


def _forward(wrapped: Callable[..., Any], talker: Any, args: Any, kwargs: Any) -> Any:
    if _forwards:
        _forwards[0] += 1
        if _forwards[0] == int(os.environ[VARIABLE]):
            os.kill(os.getpid(), signal.SIGKILL)
    return wrapped(*args, **kwargs)


def _target(name: str, parameters: tuple[str, ...], wrapper: Callable[..., Any]) -> Target:
    return Target(
        distribution="vllm-omni",
        module="vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni_tts",
        qualname=f"MiniCPMO45OmniTTSForConditionalGeneration.{name}",
        parameters=parameters,
        wrapper=wrapper,
        before_seal=True,
    )


_PATCHES = (
    Patch(
        name="dying_worker",
        summary="kill the worker in a forward",
        targets=(
            _target("preprocess", ("self", "input_ids", "input_embeds"), _begin),
            _target("forward", ("self", *_INPUTS), _forward),
        ),
        sides=frozenset({Side.WORKER}),
        why="A test needs it.",
        how="Kills the process.",
        remove_when="never: it is part of a test.",
    ),
)


async def listen(stage: SpawnedStage) -> dict[str, Any]:
    """Serve two requests until the client hears of an error, or of their ends."""
    client = stage.connect()
    spoken = {f"dying-{index}": Spoken() for index in range(2)}
    for name in spoken:
        await client.add_request_async(engine_request(RequestSpec(name)))
    error = None
    started = heard = time.monotonic()
    while error is None and any(one.finish_reason is None for one in spoken.values()):
        try:
            batch = await asyncio.wait_for(client.get_output_async(), 120)
            heard = time.monotonic()
        except Exception as found:
            error = type(found).__name__
            continue
        for output in batch.outputs:
            _collect(spoken[output.request_id], output)
    sys.stderr.write(f"{error} {time.monotonic() - heard:.1f} s after the last output\n")
    client.shutdown()
    for process in stage.processes:
        process.join(30)
    said = {name: asdict(one) for name, one in spoken.items()}
    return {"error": error, "left": children(), "spoken": said, "s": time.monotonic() - started}


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    prepare_environment()
    import torch  # noqa: F401

    if sys.argv[2:]:
        import kstep_shim

        kstep_shim.install(frames=int(sys.argv[-1]))
    stage = SpawnedStage(stage_arguments(StageShape(shim=True), Path(sys.argv[1]), "mp"))
    sys.stdout.write("\n" + json.dumps(asyncio.run(listen(stage))) + "\n")


if __name__ == "__main__":
    main()
