"""A child is armed exactly while its parent is, however it is started."""

from __future__ import annotations

import pytest

from .conftest import Play  # type: ignore[import-not-found]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.stack
def test_children_follow_their_parent(play: Play, method: str) -> None:
    result = play(
        f"""
        import multiprocessing
        import kstep_shim
        from support.children import report_to
        context = multiprocessing.get_context("{method}")

        def child():
            here, there = context.Pipe()
            process = context.Process(target=report_to, args=(there,))
            process.start()
            report = here.recv()
            process.join()
            return [report["active"], report["frames"], report["pid"] == process.pid]

        result = []
        if "{method}" != "forkserver":  # Its server keeps the environment that it started with.
            result.append(child())
        kstep_shim.install(frames=4)
        result.append(child())
        kstep_shim.uninstall()
        if "{method}" != "forkserver":
            result.append(child())
        """
    )
    off, on = [False, 1, True], [True, 4, True]
    assert result == ([on] if method == "forkserver" else [off, on, off])


def test_a_vetoed_child_stays_out(play: Play) -> None:
    result = play(
        """
        import kstep_shim
        kstep_shim.install(frames=4)
        import subprocess
        code = "import kstep_shim; print(kstep_shim.install(frames=2).reason)"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "KSTEP_SHIM": "0"},
            capture_output=True, text=True,
        )
        result = done.stdout.strip()
        """
    )
    assert result == "KSTEP_SHIM=0 in the environment"
