"""Write PATCHES.md, and the README's table of supported stacks, from the declarations."""

from __future__ import annotations

import sys
from pathlib import Path

from kstep_shim.catalog import TESTED_HEADS, every_patch, for_stack
from kstep_shim.declaration import Kind, Patch, Target
from kstep_shim.guards import TESTED_STACKS

LEDGER, README = (Path(__file__).parents[1] / name for name in ("PATCHES.md", "README.md"))
_BEGIN, _END = "<!-- support -->", "<!-- end of support -->"
_HEAD = """# Patches

Made from the declarations in `kstep_shim/patches` by `tools/write_ledger.py`; a test keeps it
equal. Each target is checked before it is touched: it must exist and take exactly these parameters.
Of targets that name a platform or a head, only those of the installed stack count: `npu` with
vllm-ascend, else `cuda`; `codec` where vLLM draws the codes from the Talker's head, else
`stop row`.
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


def support() -> str:
    """The README's table: the tested stacks, and how many patches each takes."""
    names = list(TESTED_STACKS[0])
    lines = ["| " + " | ".join([*names, "the Talker's head", "patches"]) + " |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for stack, head in zip(TESTED_STACKS, TESTED_HEADS, strict=True):
        versions = [stack.get(name, "none (CUDA)") for name in names]
        count = len(for_stack("npu" if "vllm-ascend" in stack else "cuda", head))
        lines.append("| " + " | ".join([*versions, head.value, str(count)]) + " |")
    return "\n".join([_BEGIN, *lines, _END])


def readme() -> str:
    """The README with that table."""
    before, _, rest = README.read_text().partition(_BEGIN)
    return before + support() + rest.partition(_END)[2]


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
    only = [target.platform, target.head and target.head.value]
    named = ", ".join(name for name in only if name)
    return _VERBS[target.kind] + (f" ({named})" if named else "")


def _symbol(target: Target) -> str:
    parameters = "" if target.kind is Kind.ADDED else f"({', '.join(target.parameters)})"
    return f"{target.path}{parameters}"


def main() -> int:
    """Write the file; with ``--check``, only say whether it is up to date."""
    made = {LEDGER: ledger(), README: readme()}
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text() != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
