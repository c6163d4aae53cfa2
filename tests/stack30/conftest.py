from __future__ import annotations

import pytest
from support.stages import Stages

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head

collect_ignore_glob = [] if installed_head() is Head.CODEC else ["test_*.py"]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("stages"))
