"""The three-stage miniature on disk: checkpoint, deploy YAML and the stand-ins' plug-in."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from kstep_shim.demo.checkpoint import write_checkpoint
from kstep_shim.demo.pipeline import deployment, vocabularies
from kstep_shim.demo.stage import ENVIRONMENT
from kstep_shim.demo.stand_ins import write_plugin
from support.ways import Way, start

START_TIMEOUT_S = 560
_TEMPLATE = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{{ c['text'] }}{% endfor %}{% endif %} {% endfor %}"
)
_FUNCTIONAL = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    def missing(*_, **__):
        raise NotImplementedError(f"torchaudio.functional.{name}")
    return missing
"""


class Miniature:
    """What a deployment in miniature needs, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint = write_checkpoint(directory / "checkpoint", **vocabularies())
        self.site = write_plugin(directory / "site")
        self.template = directory / "chat.jinja"
        self.template.write_text(_TEMPLATE)
        # The server imports it for changes of speed and rate, which nothing here asks for.
        (self.site / "torchaudio").mkdir()
        (self.site / "torchaudio" / "__init__.py").write_text("")
        (self.site / "torchaudio" / "functional.py").write_text(_FUNCTIONAL)

    def deploy(self, name: str, **talker: Any) -> Path:
        """Write a deploy YAML; keywords go into stage 1's entry."""
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(deployment(**talker)))
        return path

    def speak(
        self,
        way: Way,
        deploy: Path,
        directory: Path,
        program: str = "kstep_shim.demo.pipeline",
        **environ: str,
    ) -> dict[str, Any]:
        """Answer the standard prompts through ``Omni``."""
        import torch

        result, log = directory / "spoken.pt", directory / "log"
        command = ["-m", program, self.checkpoint, deploy, result]
        path = [str(self.site), str(Path(__file__).parents[1])]
        process = start(way, list(map(str, command)), log, path=path, **environ)
        out, _ = process.communicate(timeout=START_TIMEOUT_S)
        assert process.returncode == 0, (out + log.read_text())[-5000:]
        spoken: dict[str, Any] = torch.load(result)
        return spoken

    def serve(self, way: Way, deploy: Path, directory: Path, **environ: str) -> Server:
        """Start ``vllm serve``; use it as a context manager."""
        return Server(self, way, deploy, directory, environ)


class Server:
    """A running server on a port of its own."""

    def __init__(
        self, miniature: Miniature, way: Way, deploy: Path, directory: Path, environ: dict[str, str]
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = directory / "log"
        arguments = {
            "--deploy-config": deploy,
            "--host": "127.0.0.1",
            "--port": self.port,
            "--served-model-name": "tiny",
            "--chat-template": miniature.template,
        }
        options = [str(part) for pair in arguments.items() for part in pair]
        vllm = str(Path(sys.executable).with_name("vllm"))
        served = str(miniature.checkpoint)
        program = [vllm, "serve", served, "--omni", "--trust-remote-code", *options]
        environment = {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", **environ}
        self.process = start(way, program, self.log, path=[str(miniature.site)], **environment)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Server:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log.read_text()[-5000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        self.__exit__()
        raise AssertionError(f"the server is not healthy: {self.log.read_text()[-5000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def report_of(directory: Path) -> dict[str, Any]:
    """What ``kstep-shim status --json`` says of a status directory."""
    done = subprocess.run(
        [sys.executable, "-m", "kstep_shim", "status", str(directory), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return {"code": done.returncode, **json.loads(done.stdout)}
