"""``kstep-shim run -- COMMAND``: become COMMAND, armed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kstep_shim.launching import launch_environment
from kstep_shim.settings import switched

if TYPE_CHECKING:
    import argparse

#: What shells return for these.
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run(arguments: argparse.Namespace) -> int:
    """Replace this process; returns only when COMMAND cannot be started.

    A ``KSTEP_SHIM=0`` in the environment stays a veto: COMMAND then starts as it is.
    """
    command = arguments.command_line
    environment = dict(os.environ)
    if switched(environment) is False:
        _say("KSTEP_SHIM=0 in the environment: starting without the shim")
    else:
        environment |= launch_environment(
            environment,
            frames=arguments.k,
            status_dir=arguments.status_dir,
            strict=arguments.strict,
            bootstrap=True,
        )
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        _say(f"{command[0]}: command not found")
        return NOT_FOUND
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return NOT_EXECUTABLE


def _say(text: str) -> None:
    sys.stderr.write(f"kstep-shim: {text}\n")
