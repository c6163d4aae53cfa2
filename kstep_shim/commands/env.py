"""``kstep-shim env``: print the variables that arm a deployment."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from kstep_shim.commands.output import print_json, print_line, print_note
from kstep_shim.launching import launch_environment
from kstep_shim.variables import SWITCH, switched, unknown

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Print exports for a shell, or the same as JSON.

    A ``KSTEP_SHIM=0`` in the environment stays a veto: then that is all there is to export.
    """
    vetoed = switched(os.environ) is False
    if vetoed:
        print_note("KSTEP_SHIM=0 in the environment: unset it to switch the shim on")
        variables = {SWITCH: "0"}
    else:
        variables = launch_environment(
            os.environ,
            frames=arguments.k,
            status_dir=arguments.status_dir,
            strict=arguments.strict,
            bootstrap=arguments.bootstrap,
            ray=arguments.ray,
        )
        for warning in unknown(os.environ):
            print_note(warning)
    if arguments.json:
        print_json(variables)
    else:
        for name, value in variables.items():
            print_line(f"export {name}={shlex.quote(value)}")
    return 1 if vetoed else 0
