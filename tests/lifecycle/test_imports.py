"""Modules that are half-way through their import, fail, or are imported by many threads."""

from __future__ import annotations

from .conftest import Play  # type: ignore[import-not-found]


def test_a_module_that_installs_in_its_own_body(play: Play) -> None:
    result = play(
        """
        import builtins
        builtins.kstep_installer = installer
        stack.source = "kstep_installer.install(frames=1)\\n" + stack.source
        stack.__post_init__()
        module = stack.load()
        states = sorted({record.state for record in installer.status().patches})
        installer.seal(Side.WORKER, "worker", 1)
        result = [states, module.Runner().method(1), type(module.__spec__).__name__]
        """
    )
    assert result == [["APPLIED"], ["method", 1, "wrapped"], "ModuleSpec"]


def test_a_module_that_another_thread_is_importing(play: Play) -> None:
    result = play(
        """
        import builtins, threading
        builtins.started, builtins.go_on = threading.Event(), threading.Event()
        stack.source = "started.set(); go_on.wait()\\n" + stack.source
        stack.__post_init__()
        thread = threading.Thread(target=stack.load)
        thread.start()
        started.wait()
        during = sorted({record.state for record in installer.install().patches})
        go_on.set()
        thread.join()
        result = [during, sorted({record.state for record in installer.status().patches})]
        """
    )
    assert result == [["PENDING"], ["APPLIED"]]


def test_an_import_that_fails_first(play: Play) -> None:
    result = play(
        """
        import builtins
        builtins.broken = True
        stack.source = (
            "kstep_installer.install()\\n" + stack.source + "\\nif broken: raise OSError\\n"
        )
        builtins.kstep_installer = installer
        stack.__post_init__()
        outcome = []
        for broken in (True, False):
            builtins.broken = broken
            try:
                stack.load()
            except OSError:
                outcome.append("failed")
            outcome.append(sorted({record.state for record in installer.status().patches}))
        result = outcome
        """
    )
    assert result == ["failed", ["PENDING"], ["APPLIED"]]


def test_threads_that_install_and_import_at_once(play: Play) -> None:
    result = play(
        """
        import threading
        result = []
        for turn in range(25):
            stack = Stack(Path(sys.argv[1]), name=f"kstep_stub_storm_{turn}")
            installer = stack.installer()
            barrier = threading.Barrier(4)
            def work(step):
                barrier.wait()
                step()
            steps = [stack.load, stack.load, installer.install, installer.install]
            threads = [threading.Thread(target=work, args=(step,)) for step in steps]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            runner = vars(stack.load().Runner)
            states = {record.state for record in installer.status().patches}
            result.append([sorted(states), wrapped(runner["method"]), wrapped(runner["static"])])
        """
    )
    assert result == [[["APPLIED"], 1, 1]] * 25


def test_a_hook_that_imports_the_module_it_waits_for(play: Play) -> None:
    result = play(
        """
        import importlib
        other = Stack(
            Path(sys.argv[1]), name="kstep_stub_other",
            source="import kstep_stub_target\\n" + stack.source,
        )
        stack.source += "\\nimport kstep_stub_other\\n"
        stack.__post_init__()
        both = Stack.installer(stack, *stack.patches[:2], *other.patches[2:3])
        both.install()
        other.load()
        result = sorted({record.state for record in both.status().patches})
        """
    )
    assert result == ["APPLIED"]


def test_a_forked_child_starts_afresh(play: Play) -> None:
    result = play(
        """
        from kstep_shim.counters import counters
        os.register_at_fork(after_in_child=installer.forked)
        installer.install(Settings(frames=4, status_dir=str(stack.directory / "status")))
        installer.seal(Side.WORKER, "worker", 1)
        counters().increment("steps")
        runner = stack.load().Runner()
        child = os.fork()
        if not child:
            report = installer.status()
            fresh = (report.role, dict(report.counters), report.pid) == (None, {}, os.getpid())
            passes = runner.method(1) == ["method", 1]
            undone = not installer.uninstall().active
            os._exit(0 if fresh and passes and undone else 1)
        _, code = os.waitpid(child, 0)
        result = [code, installer.status().role, runner.method(1)]
        """
    )
    assert result == [0, "worker", ["method", 1, "wrapped"]]


def test_the_report_is_written_again_at_the_end(play: Play) -> None:
    script = """
        import multiprocessing
        from kstep_shim.counters import counters
        directory = stack.directory / "status"
        installer.install(Settings(status_dir=str(directory)))
        os.register_at_fork(after_in_child=installer.forked)

        def serve():
            installer.seal(Side.WORKER, "worker", 1)
            counters().increment("steps", 3)

        process = multiprocessing.get_context("fork").Process(target=serve)
        process.start()
        process.join()
        from kstep_shim.report import read_directory
        (report,) = read_directory(directory)
        result = [report.role, report.counters, report.pid == process.pid]
        """
    assert play(script) == ["worker", {"steps": 3}, True]
