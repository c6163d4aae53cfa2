"""Arms an interpreter that has this directory on PYTHONPATH, once it imports the stack.

It runs in every interpreter below, pip included, so it must cost next to nothing, hide no other
``sitecustomize``, print at most one line and never change an exit code.
"""

import os
import sys

_STACK = frozenset({"vllm", "vllm_ascend", "vllm_omni"})


class _StackFinder:
    """Finds nothing; installs the shim when the stack is about to be imported, then goes."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name in _STACK and cls in sys.meta_path:
            sys.meta_path.remove(cls)
            _register()


def _register() -> None:
    try:
        from kstep_shim.plugin import register
    except ImportError as error:
        sys.stderr.write(f"kstep_shim: not armed, the package cannot be imported: {error}\n")
    else:
        register()


def _run_next() -> None:
    """Run the ``sitecustomize`` that this one hides."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec  # Costs more than all of the above.

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("KSTEP_SHIM", "") not in ("", "0"):
    sys.meta_path.insert(0, _StackFinder)
_run_next()
