"""``kstep-shim demo``: see `kstep_shim.demo.command`."""

from kstep_shim.demo.command import run_demo as run

__all__ = ["run"]
