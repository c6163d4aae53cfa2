"""``kstep-shim env``: print the variables that arm a deployment."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from kstep_shim.commands.output import print_json, print_line
from kstep_shim.launching import launch_environment

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Print exports for a shell, or the same as JSON."""
    variables = launch_environment(
        os.environ,
        frames=arguments.k,
        status_dir=arguments.status_dir,
        strict=arguments.strict,
        bootstrap=arguments.bootstrap,
        ray=arguments.ray,
    )
    if arguments.json:
        print_json(variables)
    else:
        for name, value in variables.items():
            print_line(f"export {name}={shlex.quote(value)}")
    return 0
