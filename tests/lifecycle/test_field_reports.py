"""Field reports 25 to 31, each as the failure that somebody met; on stub targets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kstep_shim
from kstep_shim.guards import wrapt_problem

from .conftest import Play  # type: ignore[import-not-found]

BOOTSTRAP = Path(kstep_shim.__file__).parent / "bootstrap"


def interpreter(code: str, *options: str, path: tuple[Path, ...] = (), **environ: str) -> list[str]:
    """Run `code` in a fresh interpreter; standard output and error, line by line."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    joined = os.pathsep.join([*map(str, path), inherited.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**inherited, "PYTHONPATH": joined.strip(os.pathsep), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).splitlines()


def test_field_report_25_install_twice_uninstall_and_again(play: Play) -> None:
    result = play(
        """
        import threading
        result = [installer.uninstall().reason]
        module = stack.load()
        before = vars(module.Runner)["static"]
        threads = [threading.Thread(target=installer.install) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        result.append(wrapped(vars(module.Runner)["method"]))
        installer.uninstall()
        result.append(vars(module.Runner)["static"] is before)
        installer.install()
        result.append(wrapped(vars(module.Runner)["method"]))
        """
    )
    assert result == ["not installed", 1, True, 1]


def test_field_report_25_versions_of_wrapt() -> None:
    assert "2.2.0 is refused" in (wrapt_problem("2.2.0") or "")
    assert [wrapt_problem(version) for version in ("1.17.3", "2.0.0", "2.2.1", "2.5.2")] == [
        None
    ] * 4


def test_field_report_25_half_way(play: Play) -> None:
    result = play(
        """
        module = stack.load()
        module.Runner.added = 1  # The fifth of seven patches cannot be applied.
        report = installer.install(Settings(frames=4))
        left = [name for name, found in vars(module.Runner).items() if wrapped(found)]
        result = [report.active, left, stack.environ]
        """
    )
    assert result == [False, ["__init__"], {}]


def test_field_report_26_a_wrapped_method_as_a_process_target(play: Play) -> None:
    result = play(
        """
        import cloudpickle, multiprocessing, pickle
        installer.install(frames=1)
        module = stack.load()
        runner = module.Runner()
        found = [module.Runner, module.Runner.static, module.function, runner.method]
        result = [
            all(pickle.loads(dump(one)) == one for one in found[:3])
            and pickle.loads(dump(found[3]))(1) == ["method", 1]
            for dump in (pickle.dumps, cloudpickle.dumps)
        ]
        process = multiprocessing.get_context("spawn").Process(target=module.function, args=(1,))
        process.start()
        process.join()
        result.append(process.exitcode)
        """
    )
    assert result == [True, True, 0]


def test_field_report_28_too_late_is_an_error(play: Play) -> None:
    result = play(
        """
        module = stack.load()
        runner = module.Runner()
        first = installer.install(frames=4).reason
        del runner
        class Copies(module.Runner):
            kept = vars(module.Runner)["method"]
        again = stack.installer(*[p for p in stack.patches if p.name == "method"])
        result = [first, again.install(frames=4).reason]
        """
    )
    assert "a Runner was built before the shim came" in result[0]
    assert "Runner.method was copied by" in result[1]


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_field_report_29_an_interpreter_that_ignores_the_carrier(option: str) -> None:
    # Nothing arms it, so a head that runs like this must not promise anything to its stages.
    code = f"""
import sys
sys.path[:0] = {[str(Path(kstep_shim.__file__).parents[1]), *sys.path]!r}
import os
os.environ["VLLM_PLUGINS"] = "ascend"
from kstep_shim.guards import carrier_problem
print(carrier_problem(os.environ))
"""
    path = (BOOTSTRAP,)
    assert "add kstep_shim to it" in interpreter(code, option, path=path)[0]
    assert interpreter(code, path=path) == ["None"]


@pytest.mark.parametrize(
    ("version", "right"),
    [
        ("0.26.0", True),
        ("0.26.0+cpu", True),
        ("0.26.1", False),
        ("0.27.0", False),
        ("0.1.dev1+gabcdef", False),
    ],
)
def test_field_report_30_versions(play: Play, version: str, right: bool) -> None:
    result = play(
        f"""
        from kstep_shim import guards
        guards.installed_version = lambda name: "{version}"
        from kstep_shim.installer import Installer
        made = Installer(stack.patches, environ=stack.environ, tested=[{{"stub": "0.26.0"}}])
        report = made.install(frames=4)
        result = [report.active, report.reason]
        """
    )
    assert result[0] is right
    if not right:
        assert f"not tested with stub {version}" in result[1]
        assert "KSTEP_SHIM_ALLOW_UNTESTED=1" in result[1]


@pytest.mark.parametrize("first", [True, False])
def test_field_report_31_another_sitecustomize(tmp_path: Path, first: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True\n")
    path = (tmp_path, BOOTSTRAP) if first else (BOOTSTRAP, tmp_path)
    code = "import sys; print(sys.theirs)"
    assert interpreter(code, path=path, KSTEP_SHIM="1") == ["True"]


def test_field_report_31_a_start_up_that_starts_python(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys\n"
        "if os.environ.get('DEPTH', '0') == '0':\n"
        "    os.environ['DEPTH'] = '1'\n"
        "    subprocess.run([sys.executable, '-c', 'print(1)'], check=True)\n"
    )
    code = "print(2)"
    assert interpreter(code, path=(BOOTSTRAP, tmp_path), KSTEP_SHIM="1") == ["1", "2"]


def test_field_report_31_a_directory_that_outlives_the_package(tmp_path: Path) -> None:
    left = tmp_path / "bootstrap"
    left.mkdir()
    (left / "sitecustomize.py").write_text((BOOTSTRAP / "sitecustomize.py").read_text())
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    code = "import sys; sys.modules['kstep_shim'] = None; import vllm; print('served')"
    lines = interpreter(code, path=(left, tmp_path), KSTEP_SHIM="1")
    assert lines[0] == "served"
    assert len(lines) == 2
    assert "not armed" in lines[1]
