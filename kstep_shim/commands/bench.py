"""``kstep-shim bench``: see `kstep_shim.bench.command`."""

from kstep_shim.bench.command import run_bench as run

__all__ = ["run"]
