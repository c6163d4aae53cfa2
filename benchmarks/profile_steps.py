"""Where the host time of a K-frame step goes: a profile of `talker_steps.serve`."""

from __future__ import annotations

import cProfile
import pstats
import sys
from typing import Any

import talker_steps


def profiled(core: Any, batch: int, arguments: Any) -> dict[str, Any]:
    """Serve once to warm up, once under the profiler."""
    serve(core, batch, arguments)
    profiler = cProfile.Profile()
    profiler.enable()
    result = serve(core, batch, arguments)
    profiler.disable()
    print(f"batch {batch}: {result['steps']} steps")
    stats = pstats.Stats(profiler, stream=sys.stdout)
    stats.sort_stats("cumulative").print_stats(60)
    stats.sort_stats("tottime").print_stats(30)
    return result


serve = talker_steps.serve
talker_steps.serve = profiled
if __name__ == "__main__":
    talker_steps.main()
