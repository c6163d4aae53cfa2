"""Start an Omni deployment with the shim on, from Python.

``python examples/launcher.py MODEL DEPLOY.yaml``. The call to `install` must come before the engine
is built; it also arms the stages, which vllm-omni starts as processes of their own.
"""

from __future__ import annotations

import sys

import kstep_shim


def main(model: str, deploy: str) -> None:
    """Build the engine, say one sentence, and print what the shim did."""
    report = kstep_shim.install(frames=8)
    if not report.active:
        sys.stderr.write(f"one frame per step: {report.reason}\n")

    from vllm_omni.entrypoints.omni import Omni

    omni = Omni(model=model, deploy_config=deploy, trust_remote_code=True)
    for output in omni.generate([{"prompt": "Good morning!"}]):
        sys.stdout.write(f"{output.request_id}: {output.final_output_type}\n")
    sys.stdout.write(f"{kstep_shim.status()}\n")
    omni.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
