"""Alert when the processes of a deployment disagree: for a health check or a cron job.

``python examples/read_status.py DIR``, DIR being what KSTEP_SHIM_STATUS_DIR was at the start.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main(directory: str) -> int:
    """Print one line; 0 when every process runs K frames per step."""
    done = subprocess.run(
        [sys.executable, "-m", "kstep_shim", "status", directory, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        sys.stderr.write(done.stderr)
        return 2
    found = json.loads(done.stdout)
    engaged = sum(p["counters"].get("steps_engaged", 0) for p in found["processes"])
    verdict = "; ".join(found["problems"]) or f"K={found['frames']}, {engaged} steps engaged"
    sys.stdout.write(verdict + "\n")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
