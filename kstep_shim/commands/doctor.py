"""``kstep-shim doctor``: everything that can be checked before a deployment starts."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from kstep_shim.commands.output import print_json, print_line, print_table
from kstep_shim.deployment import read_deployment
from kstep_shim.doctor import Verdict, examine

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Print every check; 1 when one fails."""
    deployment = None
    if arguments.deploy is not None:
        deployment = read_deployment(arguments.deploy, arguments.platform)
    checks = list(examine(os.environ, deployment))
    failed = any(check.verdict is Verdict.FAIL for check in checks)
    if arguments.json:
        print_json({"ok": not failed, "checks": [check.to_dict() for check in checks]})
    else:
        rows = [(check.name, check.verdict, check.reason) for check in checks]
        print_table("kstep-shim doctor", ("", "", ""), rows)
        counts = Counter(check.verdict for check in checks)
        print_line(", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v]))
    return 1 if failed else 0
