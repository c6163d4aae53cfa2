"""What a patch *is*: data only, no behaviour and no import of anything heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any


class Kind(Enum):
    """What the target attribute is on its class."""

    METHOD = "method"
    STATICMETHOD = "static method"
    # The class has no such attribute; the wrapper itself (a function, a property) is put there.
    ADDED = "added attribute"
    # A method that a wrapper elsewhere calls or covers on an instance; nothing is put around it.
    RELIED_ON = "method relied on"


class Head(Enum):
    """What kind of head the installed Talker has; see `kstep_shim.frames.flavour`."""

    STOP_ROW = "stop row"
    CODEC = "codec"


class Side(Enum):
    """The process that needs a patch."""

    HEAD = "head"
    ENGINE_CORE = "engine core"
    WORKER = "worker"


class State(StrEnum):
    """What has become of a patch in this process."""

    DISABLED = "DISABLED"
    PENDING = "PENDING"
    APPLIED = "APPLIED"
    REFUSED = "REFUSED"
    DISPLACED = "DISPLACED"
    REVERTED = "REVERTED"


@dataclass(frozen=True)
class Target:
    """One attribute of one class (or module) and what goes around it.

    Parameters
    ----------
    distribution
        Name of the distribution that the module belongs to, for example ``vllm-omni``.
    module, qualname
        Where the attribute lives, for example ``vllm.v1.sample.rejection_sampler`` and
        ``RejectionSampler.parse_output``. Name the class that defines it.
    parameters
        The parameter names of the unpatched callable in order: ``self`` included, ``*args`` and
        ``**kwargs`` left out. The patch is refused when they differ. Not used for `Kind.ADDED`.
    wrapper
        A module-level function ``(wrapped, instance, args, kwargs)``, or, for `Kind.ADDED`, the
        very object to put on the class. None for `Kind.RELIED_ON`.
    kind
        What the attribute is.
    before_seal
        By default a wrapper is pass-through until `Installer.seal` has opened the gate of its
        side. True lets it run from the moment it is applied, and also in a process where the shim
        has refused: meant for the few places where a decision is taken (the stage configuration,
        the constructors of scheduler and runner). `Kind.ADDED` objects are never gated.
    platform
        ``npu`` or ``cuda`` for a target that only one of them has; None for both. This is how a
        patch has alternatives: `kstep_shim.catalog.for_stack` leaves those of the installed
        platform, and every one of them must be there.
    head
        The kind of head that a target is for; None for every kind. Chosen like `platform`.
    """

    distribution: str
    module: str
    qualname: str
    parameters: tuple[str, ...]
    wrapper: Any = None
    kind: Kind = Kind.METHOD
    before_seal: bool = False
    platform: str | None = None
    head: Head | None = None

    def __post_init__(self) -> None:
        if (self.wrapper is None) is not (self.kind is Kind.RELIED_ON):
            raise ValueError(f"{self.path} needs a wrapper unless it is only relied on")

    @property
    def path(self) -> str:
        """The symbol as messages print it."""
        return f"{self.module}.{self.qualname}"

    @property
    def owner_names(self) -> list[str]:
        """Names to walk from the module to the object that holds the attribute."""
        return self.qualname.split(".")[:-1]

    @property
    def name(self) -> str:
        """Name of the attribute itself."""
        return self.qualname.rpartition(".")[2]


@dataclass(frozen=True)
class Patch:
    """One patch point, with the reasons that a reader needs to judge it.

    Parameters
    ----------
    name
        What ``KSTEP_SHIM_DISABLE`` and the report call it, for example ``model_forward``.
    summary
        One line for the report.
    targets
        The attributes that it changes; every one must be there.
    sides
        The processes that need it.
    why, how, remove_when
        The ledger: what goes wrong without it, what it does, and when it may go.
    required
        False lets the shim work without it.
    """

    name: str
    summary: str
    targets: tuple[Target, ...]
    sides: frozenset[Side]
    why: str
    how: str
    remove_when: str
    required: bool = True

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(f"a patch name must be a lower-case identifier, not {self.name!r}")
        if not self.targets or not self.sides:
            raise ValueError(f"patch {self.name} needs at least one target and one side")
