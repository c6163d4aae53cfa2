"""The logger of the package.

vLLM configures the logger ``vllm`` only, so a child of it is the one place where an INFO line
appears, and appears formatted like every other line of the server.
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("vllm.kstep_shim")
