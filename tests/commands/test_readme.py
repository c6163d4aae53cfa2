"""What the README says, against the code."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from kstep_shim.catalog import TESTED_HEADS, every_patch, installed_head
from kstep_shim.cli import build_parser
from kstep_shim.guards import TESTED_STACKS, installed_version
from kstep_shim.settings import DEFAULT_FRAMES, Settings
from kstep_shim.variables import VARIABLES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "CHANGELOG.md", "softnpu/README.md", "benchmarks/RESULTS.md")
_SOURCES = "\n".join(path.read_text() for path in (ROOT / "kstep_shim").rglob("*.py"))


def rows(*columns: str) -> list[list[str]]:
    """The table with these headings, cell by cell."""
    head = "| " + " | ".join(columns) + " |\n"
    assert README.count(head) == 1
    table = README.split(head)[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def commands() -> list[str]:
    parser = build_parser()
    (action,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return list(action.choices)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    gone = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert gone == []


def test_versions_and_patches() -> None:
    """The table itself is made by tools/write_ledger.py, whose test is with the examples."""
    found = {name: installed_version(name) for name in TESTED_STACKS[0]}
    heads = [h for stack, h in zip(TESTED_STACKS, TESTED_HEADS, strict=True) if stack == found]
    assert heads == [installed_head()]
    optional = [patch.name for patch in every_patch() if not patch.required]
    assert optional == ["draft_metadata"]
    assert "all but `draft_metadata` are required" in README


def test_variables_and_their_defaults() -> None:
    table = {name.strip("`"): default.strip("`") for name, _, default in rows(
        "variable", "meaning", "default"
    )}  # fmt: skip
    exported = Settings(frames=DEFAULT_FRAMES).to_environ()
    expected = {name: exported[name] or "none" for name in VARIABLES}
    assert table == {**expected, "KSTEP_SHIM": "off"}


def test_every_command_is_described() -> None:
    described = {row[0].split()[1] for row in rows("command", "what it tells or does")}
    assert described | {"demo"} == set(commands())
    assert "`kstep-shim demo`" in README


def test_commands_that_are_shown_can_be_typed() -> None:
    parser = build_parser()
    shown = re.findall(r"^\$ (?:[A-Z_]+=\S+ )*kstep-shim (.*)$", README, re.M)
    assert len(shown) >= 3
    for line in shown:
        parser.parse_args(shlex.split(line, comments=True))


_MESSAGES = [row[0] for row in rows("message", "what it means", "way out")]
_OURS = [message for message in _MESSAGES if "without any of these" not in message]


@pytest.mark.parametrize("message", _OURS)
def test_messages_are_those_of_the_code(message: str) -> None:
    literal = message.strip("`").removesuffix("...").strip()
    parts = [part.strip(" :") for part in re.split(r"\.\.\.|patch$", literal) if part.strip(" :")]
    for part in parts:
        assert part.removesuffix("=") in _joined(_SOURCES), part


def _joined(source: str) -> str:
    """String literals that continue on the next line, in one piece."""
    return re.sub(r'"\s*\n\s*f?"', "", source)
