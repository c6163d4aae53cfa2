"""Install, let every patch be applied, uninstall, and speak through ``Omni`` all the same.

Run as a script, like `kstep_shim.demo.pipeline`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from kstep_shim.demo.pipeline import prepare_pipeline_environment, speak
from support.ways import FRAMES


def main(checkpoint: str, deploy: str, result: str) -> None:
    prepare_pipeline_environment()
    import torch

    import kstep_shim

    kstep_shim.install(frames=FRAMES)
    importlib.import_module("kstep_shim.demo.preload")
    importlib.import_module("vllm_ascend.model_executor.warmup.kernel_warmup")
    states = {record.state.value for record in kstep_shim.status().patches}
    assert states == {"APPLIED"}, states
    assert not kstep_shim.uninstall().active
    torch.save(speak(Path(checkpoint), Path(deploy)), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
