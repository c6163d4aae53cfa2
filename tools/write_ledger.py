"""Write PATCHES.md, the ledger of everything that the shim patches, from the declarations."""

from __future__ import annotations

import sys
from pathlib import Path

from kstep_shim.catalog import every_patch
from kstep_shim.declaration import Kind, Patch, Target

LEDGER = Path(__file__).parents[1] / "PATCHES.md"
_HEAD = """# Patches

Made from the declarations in `kstep_shim/patches` by `tools/write_ledger.py`; a test keeps it
equal. Each target is checked before it is touched: it must exist and take exactly these parameters.
Of targets that name a platform, only those of the installed one count: `npu` with vllm-ascend,
else `cuda`.
"""
_VERBS = {
    Kind.METHOD: "wrapped",
    Kind.STATICMETHOD: "wrapped (static)",
    Kind.ADDED: "added",
    Kind.RELIED_ON: "relied on",
}


def ledger() -> str:
    """The whole file."""
    return "\n".join([_HEAD, *map(_entry, every_patch())])


def _entry(patch: Patch) -> str:
    sides = ", ".join(sorted(side.value for side in patch.sides))
    need = "required" if patch.required else "optional"
    lines = [f"## {patch.name}", "", f"{patch.summary[0].upper()}{patch.summary[1:]}.", ""]
    lines += [f"- {_verb(target)}: `{_symbol(target)}`" for target in patch.targets]
    lines += [
        f"- in: {sides} ({need})",
        f"- why: {patch.why}",
        f"- how: {patch.how}",
        f"- can go when {patch.remove_when}",
        "",
    ]
    return "\n".join(lines)


def _verb(target: Target) -> str:
    return _VERBS[target.kind] + (f" ({target.platform})" if target.platform else "")


def _symbol(target: Target) -> str:
    parameters = "" if target.kind is Kind.ADDED else f"({', '.join(target.parameters)})"
    return f"{target.path}{parameters}"


def main() -> int:
    """Write the file; with ``--check``, only say whether it is up to date."""
    made = ledger()
    if "--check" in sys.argv[1:]:
        return 0 if LEDGER.exists() and LEDGER.read_text() == made else 1
    LEDGER.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
