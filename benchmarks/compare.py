"""Set results of `talker_steps.py` side by side: times faster, and streams with equal ids."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(paths: list[str]) -> None:
    """The first file is the K=1 baseline."""
    baseline, *others = [json.loads(Path(path).read_text()) for path in paths]
    for other in others:
        for batch, facts in other["batches"].items():
            before = baseline["batches"][batch]
            equal = sum(facts["codes"][name] == codes for name, codes in before["codes"].items())
            print(
                f"K={other['k']} batch {batch}: {before['ms_per_frame']:.2f} -> "
                f"{facts['ms_per_frame']:.2f} ms per frame, "
                f"{before['ms_per_frame'] / facts['ms_per_frame']:.2f} times faster, "
                f"ids equal {equal} of {len(before['codes'])}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
