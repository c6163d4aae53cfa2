"""Counters of kernel calls and of calls to unimplemented things."""

from __future__ import annotations

from collections import Counter

kernels: Counter[str] = Counter()
missing: Counter[str] = Counter()
