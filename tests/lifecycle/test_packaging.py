"""The wheel: what it brings, what it writes, and what is left when it goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Asks for everything that an installation is: the package, its version, the plug-in, the command.
_ASK = (
    "from importlib.metadata import entry_points, version; import kstep_shim;"
    "(found,) = entry_points(group='vllm.general_plugins', name='kstep_shim');"
    "print(version('kstep-shim'), kstep_shim.__version__, found.value, kstep_shim.__file__)"
)


def pip(*arguments: object, python: Path | str = sys.executable, **environ: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *map(str, arguments)],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def output(*command: object, **environ: str) -> tuple[str, str]:
    """Run a command that must succeed, away from the checkout; standard output and error."""
    dropped = ("PYTHONPATH", "KSTEP_SHIM")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    done = subprocess.run(
        list(map(str, command)),
        env={**inherited, **environ},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is written into the checkout."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kstep_shim", source / "kstep_shim", ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    made = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", made, source)
    (path,) = made.glob("*.whl")
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an empty virtual environment."""
    venv.create(tmp_path / "venv", symlinks=True)
    return tmp_path / "venv" / "bin" / "python"


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("kstep_shim/")}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "kstep_shim").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names == expected
    assert "kstep_shim/bootstrap/sitecustomize.py" in names


def test_field_report_31_uninstalling_leaves_nothing(wheel: Path, python: Path) -> None:
    root = python.parents[1]
    before = files(root)
    pip("install", "--no-deps", wheel, python=python)
    found, _ = output(python, "-c", _ASK)
    assert found.split()[2] == "kstep_shim.plugin:register"
    assert output(python.with_name("kstep-shim"), "--version")[0].startswith("kstep-shim ")
    added = files(root) - before
    assert not [name for name in added if name.endswith(".pth")]
    bootstrap = Path(found.split()[3]).parent / "bootstrap"
    assert output(python, "-c", "print(1)", PYTHONPATH=str(bootstrap), KSTEP_SHIM="1")[0] == "1\n"
    pip("uninstall", "--yes", "kstep-shim", python=python)
    assert files(root) == before
    left = output(python, "-c", "print(2)", PYTHONPATH=str(bootstrap), KSTEP_SHIM="1")
    assert left == ("2\n", ""), "a path that still names the bootstrap directory does no harm"


def test_field_report_31_nothing_is_written_into_an_installation(
    wheel: Path, python: Path, tmp_path: Path
) -> None:
    # What a read-only installation needs; as root, no permission would show it.
    pip("install", "--no-deps", wheel, python=python)
    root = python.parents[1]
    before = files(root)
    code = "import kstep_shim, kstep_shim.plugin as p; p.register()"
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path / "home")}
    output(python, "-c", code, **quiet)
    output(python, "-m", "kstep_shim", "status", "--help", **quiet)
    bootstrap = next(root.rglob("bootstrap"))
    output(python, "-c", "pass", PYTHONPATH=str(bootstrap), KSTEP_SHIM="1", **quiet)
    assert files(root) == before
    assert not (tmp_path / "home").exists()


def test_field_report_31_an_installation_for_one_user(wheel: Path, tmp_path: Path) -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    base = {"PYTHONUSERBASE": str(tmp_path / "user"), "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    pip("install", "--user", "--no-deps", "--ignore-installed", wheel, python=python, **base)
    found, _ = output(python, "-c", _ASK, **base)
    assert found.split()[3].startswith(str(tmp_path / "user"))
    pip("uninstall", "--yes", "kstep-shim", python=python, **base)
    left = [name for name in files(tmp_path / "user") if "kstep" in name]
    assert left == []
