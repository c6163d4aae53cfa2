"""Environment of every test, set before torch is imported."""

from __future__ import annotations

import os

for _name, _value in {
    "SOFTNPU": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "VLLM_USE_AOT_COMPILE": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}.items():
    os.environ.setdefault(_name, _value)
