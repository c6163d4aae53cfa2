"""How every subcommand prints: one JSON object for machines, a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


def print_json(value: Any) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")


def print_note(text: str) -> None:
    """Print one line that no script reads, on standard error."""
    sys.stderr.write(f"kstep-shim: {text}\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; a cell that says pass, warn or fail is coloured."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        texts = ["" if cell is None else str(cell) for cell in row]
        table.add_row(*(Text(text, _STYLES.get(text, "")) for text in texts))
    console = Console()
    if not console.is_terminal:
        console.width = 160  # A log has no edge, and reasons should stay on their line.
    console.print(Text(title))  # As the table's own title it would be folded to a narrow table.
    console.print(table)
