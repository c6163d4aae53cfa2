"""An armed head whose stage loses the switch on its way: the stage must not start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.spawned import SpawnedStage, stage_arguments
from kstep_shim.demo.stage import prepare_environment


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    prepare_environment()
    import torch  # noqa: F401
    from vllm_omni.engine import stage_engine_startup

    import kstep_shim

    kstep_shim.install(frames=8)
    launch = stage_engine_startup.launch_stage_replica

    def launching(*args, **kwargs):
        del os.environ["KSTEP_SHIM"]
        return launch(*args, **kwargs)

    stage_engine_startup.launch_stage_replica = launching
    SpawnedStage(stage_arguments(StageShape(shim=True), Path(sys.argv[1])))


if __name__ == "__main__":
    main()
