"""``kstep-shim run -- COMMAND``: become COMMAND, armed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kstep_shim.commands.output import print_note
from kstep_shim.launching import launch_environment
from kstep_shim.variables import switched, unknown

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
        print_note("KSTEP_SHIM=0 in the environment: starting without the shim")
    else:
        environment |= launch_environment(
            environment,
            frames=arguments.k,
            status_dir=arguments.status_dir,
            strict=arguments.strict,
            bootstrap=True,
        )
        for warning in unknown(os.environ):
            print_note(warning)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        print_note(f"{command[0]}: command not found")
        return NOT_FOUND
    except OSError as error:
        print_note(f"{command[0]}: {error.strerror}")
        return NOT_EXECUTABLE
