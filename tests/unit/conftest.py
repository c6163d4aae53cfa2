"""Fixtures for the installing half."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stubs import Stack, on_path


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stub module of its own for one test."""
    with on_path(tmp_path):
        yield Stack(tmp_path)
