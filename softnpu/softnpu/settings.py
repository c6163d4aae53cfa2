"""The switch and the settings, read from the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

active = False
device_name = os.environ.get("SOFTNPU_DEVICE_NAME", "Ascend910B3")


def wanted() -> bool:
    """Say whether the environment asks for the stand-in."""
    return os.environ.get("SOFTNPU") == "1"


def site_dir() -> Path:
    """Return the folder of packages which must stay out of site-packages (torchvision)."""
    return Path(os.environ.get("SOFTNPU_SITE") or Path(sys.prefix, "softnpu-site"))
