"""The real, unmodified runner of vllm-ascend and vllm-omni."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

_FULL = "FULL_DECODE_ONLY"


class Server:
    """Runs scenarios in forks of one process which has imported the stack."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        reader, writer = os.pipe()
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "runner.server", str(writer)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=[writer],
                env=os.environ | {"PYTHONPATH": path},
            )
        os.close(writer)
        self._statuses = os.fdopen(reader)
        self.run = functools.cache(self._run)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        self._statuses.close()

    def _run(self, name: str, *arguments: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        path = self._folder / "-".join((name, *arguments))
        print(path, name, *arguments, file=self.process.stdin, flush=True)
        status = self._statuses.readline()
        assert status == "0\n", self._log.read_text()[-3000:]
        result: dict[str, Any] = torch.load(path, weights_only=False)
        assert result["missing"] == {}
        return result


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("runner"))
    yield server
    server.close()


@pytest.fixture
def eager(server: Server) -> dict[str, Any]:
    return server.run("plain")


def _assert_same(result: dict[str, Any], reference: dict[str, Any]) -> None:
    assert result["codes"] == reference["codes"]
    assert result["finished"] == reference["finished"]
    assert result["hidden"].keys() == reference["hidden"].keys()
    for name, hidden in result["hidden"].items():
        assert torch.equal(hidden, reference["hidden"][name])


def test_eager(eager: dict[str, Any]) -> None:
    assert {name: len(codes) > 5 for name, codes in eager["codes"].items()} == {
        "r0": True, "r1": True, "r2": True,
    }  # fmt: skip
    assert len(eager["finished"]) == 3
    assert eager["custom_ops_loaded"]
    issued = eager["after"].keys()
    assert "npu_fused_infer_attention_score" in issued
    assert "npu_scatter_pa_kv_cache" in issued
    assert "NPUGraph.replay" not in issued


def test_a_seed_with_a_temperature(server: Server) -> None:
    result = server.run("seeded_sampling")
    assert result["generators"] or result["finished"]
    assert all(result["codes"].values())


@pytest.mark.parametrize(("mode", "captures"), [(_FULL, 4), ("PIECEWISE", 12)])
def test_graphs_equal_eager_mode(
    server: Server, eager: dict[str, Any], mode: str, captures: int
) -> None:
    result = server.run("plain", mode)
    _assert_same(result, eager)
    assert result["after"]["graph.capture"] == captures
    assert result["after"]["NPUGraph.replay"] > result["steps"] / 2


def test_an_update_before_the_replay(server: Server, eager: dict[str, Any]) -> None:
    result = server.run("enpu")
    _assert_same(result, eager)
    assert result["after"]["NPUGraph.replay"] > result["steps"] / 2


def test_several_replays_in_one_step(server: Server, eager: dict[str, Any]) -> None:
    result = server.run("repeated_forward")
    _assert_same(result, eager)
    single = server.run("plain", _FULL)["after"]["NPUGraph.replay"]
    assert result["after"]["NPUGraph.replay"] == 4 * single


def test_a_spoiled_pool_changes_nothing(server: Server, eager: dict[str, Any]) -> None:
    result = server.run("poisoned_pool")
    assert result["poisoned"] > 1000
    _assert_same(result, eager)


@pytest.mark.parametrize("mode", [_FULL, "PIECEWISE"])
def test_the_forward_pass_needs_no_host(server: Server, eager: dict[str, Any], mode: str) -> None:
    _assert_same(server.run("forward_without_host", mode), eager)


def test_a_missing_update_is_noticed(server: Server) -> None:
    result = server.run("without_update")
    assert "ExternalEvent" in result["error"]
    assert not result["finished"]


def test_a_fresh_input_is_not_seen(server: Server, eager: dict[str, Any]) -> None:
    codes = server.run("fresh_input")["codes"]["r0"]
    assert len(codes) > 5
    assert codes != eager["codes"]["r0"][: len(codes)]


def test_a_replay_runs_no_host_code(server: Server) -> None:
    result = server.run("host_calls")
    # The two prefill steps run eagerly.
    assert result["host_calls"] == 2
    assert result["after"]["NPUGraph.replay"] == result["steps"] - 2


@pytest.mark.parametrize("kernel", ["slot_mapping", "greedy_rejection"])
def test_triton_kernels_in_the_interpreter(server: Server, kernel: str) -> None:
    for interpreted, expected in server.run(kernel)["pairs"]:
        assert interpreted == expected
