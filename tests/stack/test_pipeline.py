"""Thinker, Talker and vocoder in processes of their own: K=8 audio equals K=1's, bit for bit."""

from __future__ import annotations

import base64
import io
import wave
from pathlib import Path
from typing import Any

import pytest
from support.pipelines import Miniature, report_of
from support.ways import FRAMES, OFF, WAYS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Miniature:
    return Miniature(tmp_path_factory.mktemp("miniature"))


@pytest.fixture(scope="module")
def baseline(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    deploy = miniature.deploy("k1", async_scheduling=False)
    return miniature.speak(OFF, deploy, tmp_path_factory.mktemp("k1"))


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    import torch

    assert found.keys() == expected.keys()
    for prompt, one in expected.items():
        assert found[prompt]["tokens"] == one["tokens"]
        assert one["audio"].numel() > 0
        assert torch.equal(found[prompt]["audio"], one["audio"])


def assert_engaged(status: Path, stages: int = 1) -> None:
    found = report_of(status)
    assert (found["code"], found["problems"], found["frames"]) == (0, [], FRAMES)
    workers = [p for p in found["processes"] if "worker" in (p["role"] or "")]
    assert len(workers) == stages
    for worker in workers:
        assert worker["counters"]["steps_engaged"] > 0


@pytest.mark.parametrize("way", list(WAYS))
def test_each_way_in_gives_the_same_audio(
    miniature: Miniature, baseline: dict[str, Any], tmp_path: Path, way: str
) -> None:
    # The key is left out of the YAML: the shim supplies it, and synchronous scheduling with it.
    status = tmp_path / "status"
    environ = {"KSTEP_SHIM_STATUS_DIR": str(status)}
    spoken = miniature.speak(WAYS[way], miniature.deploy(way), tmp_path, **environ)
    assert_same(spoken, baseline)
    assert_engaged(status)


def test_k_from_the_yaml(miniature: Miniature, baseline: dict[str, Any], tmp_path: Path) -> None:
    status = tmp_path / "status"
    key = {"method": "ngram", "num_speculative_tokens": FRAMES - 1, "prompt_lookup_max": 1}
    deploy = miniature.deploy("yaml", speculative_config=key, async_scheduling=False)
    environ = {"KSTEP_SHIM": "1", "KSTEP_SHIM_STATUS_DIR": str(status)}
    spoken = miniature.speak(OFF, deploy, tmp_path, KSTEP_SHIM_FRAMES="2", **environ)
    assert_same(spoken, baseline)
    assert_engaged(status)


def test_uninstalled_is_never_installed(
    miniature: Miniature, baseline: dict[str, Any], tmp_path: Path
) -> None:
    status = tmp_path / "status"
    deploy = miniature.deploy("undone", async_scheduling=False)
    environ = {"KSTEP_SHIM_STATUS_DIR": str(status)}
    spoken = miniature.speak(OFF, deploy, tmp_path, program="support.undone", **environ)
    assert_same(spoken, baseline)
    assert not status.exists(), "no process was armed"


def test_a_server_answers_the_openai_client(miniature: Miniature, tmp_path: Path) -> None:
    answers = {}
    for name, way, environ in (
        ("k1", OFF, {}),
        ("k8", WAYS["plugin"], {"KSTEP_SHIM_STATUS_DIR": str(tmp_path / "status")}),
    ):
        directory = tmp_path / name
        directory.mkdir()
        with miniature.serve(way, miniature.deploy(name), directory, **environ) as server:
            answers[name] = ask(server.url, "w5 w6 w7 w8")
            if name == "k8":
                assert_engaged(tmp_path / "status")
    assert answers["k8"] == answers["k1"]
    text, sound = answers["k8"]
    assert text
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels()) == (24000, 1)
        assert file.getnframes() > 0


def ask(url: str, text: str) -> tuple[str, bytes]:
    """Text and wav of one chat completion."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none", timeout=300)
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": text}],
        modalities=["text", "audio"],
    )
    messages = [choice.message for choice in answer.choices]
    words = next(message.content for message in messages if message.content)
    audio = next(message.audio for message in messages if message.audio)
    return words, base64.b64decode(audio.data)


def test_two_replicas_of_stage_1(
    miniature: Miniature, baseline: dict[str, Any], tmp_path: Path
) -> None:
    status = tmp_path / "status"
    deploy = miniature.deploy("replicas", num_replicas=2, devices="0,1")
    environ = {"KSTEP_SHIM_STATUS_DIR": str(status)}
    assert_same(miniature.speak(WAYS["plugin"], deploy, tmp_path, **environ), baseline)
    assert_engaged(status, stages=2)
