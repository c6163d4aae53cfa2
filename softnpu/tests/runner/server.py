"""Imports the stack once and runs each scenario in a fork: the stack's state cannot be reset.

Reads lines ``PATH SCENARIO [ARGUMENT]``. The result goes to the file, and a line with the exit
status of the fork to the file descriptor which is the argument: the stack prints to the others.
"""

from __future__ import annotations

import os
import sys
import traceback

import torch
import vllm_omni.platforms.npu.worker.npu_ar_model_runner
import vllm_omni.platforms.npu.worker.npu_ar_worker  # noqa: F401

import softnpu
from runner import scenarios


def _run(path: str, name: str, *arguments: str) -> None:
    result = getattr(scenarios, name)(*arguments)
    torch.save(result | {"missing": softnpu.missing_calls()}, path)


def main() -> None:
    """Serve until the input ends."""
    statuses = os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _run(*line.split())
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        print(status, file=statuses, flush=True)
    os._exit(0)  # threads of the stack would keep the process alive


if __name__ == "__main__":
    main()
