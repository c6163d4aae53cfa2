"""Import the stack in one order, or from several threads, after the shim was installed."""

from __future__ import annotations

import importlib
import json
import sys
import threading

STORM = (
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.sample.rejection_sampler",
    "vllm.v1.worker.gpu_input_batch",
    "vllm_omni.core.sched.omni_ar_scheduler",
)


def main() -> None:
    import torch  # noqa: F401

    import kstep_shim

    kstep_shim.install(frames=4)
    errors: list[str] = []

    def load(name: str) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:
            errors.append(f"{name}: {error!r}")

    if sys.argv[1] == "storm":
        threads = [threading.Thread(target=load, args=(name,)) for name in STORM]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for name in sys.argv[1].split(","):
            load(name)
    importlib.import_module("kstep_shim.demo.preload")
    importlib.import_module("vllm_ascend.model_executor.warmup.kernel_warmup")
    states = {record.name: record.state.value for record in kstep_shim.status().patches}
    sys.stdout.write("\n" + json.dumps({"errors": errors, "states": states}) + "\n")


if __name__ == "__main__":
    main()
