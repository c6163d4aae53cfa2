"""A driver and a worker as vLLM's Ray executors bring them up, without Ray.

Run as a script: ``python -m support.ray_worker EXECUTOR``. The driver makes stage 1's engine
configuration and starts a worker with a bare environment, to which the worker adds whatever that
executor would copy, before it builds the worker class.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Ray starts its workers with the environment of its own daemon.
_OF_THE_NODE = ("PATH", "HOME", "PYTHONPATH", "SOFTNPU", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")
_WORKER = """
import os, pickle, sys
import torch
from transformers.dynamic_module_utils import init_hf_modules
from vllm.v1.worker.worker_base import WorkerWrapperBase
init_hf_modules()
kwargs, copied, overwrite = pickle.loads(open(sys.argv[1], "rb").read())
wrapper = WorkerWrapperBase()
if overwrite:
    wrapper.update_environment_variables([copied])
else:
    for name, value in copied.items():
        os.environ.setdefault(name, value)
wrapper.init_worker([kwargs])
import kstep_shim
print("\\n" + repr(kstep_shim.status().active))
"""


def copied_by(executor: str) -> dict[str, str]:
    """What each of vLLM's Ray executors copies from the driver to its workers."""
    from vllm.platforms import current_platform

    if executor == "v1":
        from vllm.ray.ray_env import get_env_vars_to_copy

        names = get_env_vars_to_copy(additional_vars=set(current_platform.additional_env_vars))
        return {name: os.environ[name] for name in names if name in os.environ}
    from vllm.v1.executor.ray_env_utils import get_driver_env_vars

    return get_driver_env_vars(worker_specific_vars=set())


def main(executor: str) -> dict[str, Any]:
    from kstep_shim.demo.scenario import StageShape
    from kstep_shim.demo.stage import engine_arguments, prepare_environment

    prepare_environment()
    import torch  # noqa: F401
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    config = OmniEngineArgs(**engine_arguments(StageShape(shim=True))).create_engine_config()
    node = {name: os.environ[name] for name in _OF_THE_NODE if name in os.environ}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "worker.pickle"
        arguments = {
            "vllm_config": config,
            "local_rank": 0,
            "rank": 0,
            "distributed_init_method": "tcp://127.0.0.1:1",
            "is_driver_worker": True,
        }
        handed_over = (arguments, copied_by(executor), executor == "v1")
        path.write_bytes(pickle.dumps(handed_over))
        done = subprocess.run(
            [sys.executable, "-c", _WORKER, str(path)],
            env=node,
            capture_output=True,
            text=True,
            check=False,
        )
    return {
        "worker_cls": config.parallel_config.worker_cls,
        "drafts": config.speculative_config and config.speculative_config.num_speculative_tokens,
        "code": done.returncode,
        "armed": done.stdout.splitlines()[-1:] == ["True"],
        "error": done.stderr[-3000:],
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1])) + "\n")
