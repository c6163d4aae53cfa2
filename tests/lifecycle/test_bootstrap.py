"""The bootstrap directory on PYTHONPATH: what it does to interpreters, and what it must not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kstep_shim

BOOTSTRAP = Path(kstep_shim.__file__).parent / "bootstrap"
_LOADED = "import sys; print(sorted({'kstep_shim', 'wrapt', 'torch'} & set(sys.modules)))"


def interpreter(
    code: str, *path: Path, options: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` with the bootstrap directory and `path` on PYTHONPATH."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    joined = os.pathsep.join(map(str, [BOOTSTRAP, *path]))
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**inherited, "PYTHONPATH": joined, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def stack_on_path(tmp_path: Path) -> Path:
    """A package called vllm that is quick to import."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("switch", ["", "0", "1"])
def test_an_interpreter_without_the_stack_pays_nothing(switch: str) -> None:
    done = interpreter(_LOADED, KSTEP_SHIM=switch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_importing_the_stack_installs(stack_on_path: Path) -> None:
    code = "import vllm, kstep_shim; print(kstep_shim.status().reason)"
    assert "not installed\n" in interpreter(code, stack_on_path).stdout
    assert "not installed\n" not in interpreter(code, stack_on_path, KSTEP_SHIM="1").stdout


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_isolated_interpreters_are_not_armed(option: str) -> None:
    # The carrier check knows these; here it is pinned that they really switch it off.
    code = "import sys; print([type(f).__name__ for f in sys.meta_path], sys.meta_path)"
    done = interpreter(code, options=(option,), KSTEP_SHIM="1")
    assert "_StackFinder" not in done.stdout


def test_the_sitecustomize_that_it_hides_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.next_ran = __file__\n")
    done = interpreter("import sys; print(sys.next_ran)", tmp_path, KSTEP_SHIM="1")
    assert done.stdout.strip() == str(tmp_path / "sitecustomize.py")


def test_a_removed_package_is_one_line_and_no_error(stack_on_path: Path) -> None:
    code = "import sys; sys.modules['kstep_shim'] = None; import vllm; print('served')"
    done = interpreter(code, stack_on_path, KSTEP_SHIM="1")
    assert (done.returncode, done.stdout) == (0, "served\n")
    assert len(done.stderr.splitlines()) == 1
    assert "not armed" in done.stderr


def test_a_refusal_in_strict_mode_stops_the_import(stack_on_path: Path) -> None:
    environ = {"KSTEP_SHIM": "yes", "KSTEP_SHIM_STRICT": "1"}
    done = interpreter("import vllm", stack_on_path, **environ)
    assert done.returncode == 1
    assert "KStepError: KSTEP_SHIM='yes'" in done.stderr
    assert interpreter("print(1)", stack_on_path, **environ).returncode == 0
