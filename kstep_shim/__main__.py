"""``python -m kstep_shim`` is the command ``kstep-shim``."""

from kstep_shim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
