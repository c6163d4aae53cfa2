"""Whether a runner serves a Talker stage with several frames per step; asked at every step."""

from __future__ import annotations

from typing import Any

_ARMED = "_kstep_shim_armed"
_FLAVOUR = "_kstep_shim_flavour"


def armed(runner: Any) -> bool:
    """The answer for this runner, found out once: neither the drafts nor the model change."""
    from kstep_shim.frames.contract import supports_multi_frame

    if _ARMED not in vars(runner):
        armed = runner.num_spec_tokens > 0 and supports_multi_frame(runner.get_model())
        setattr(runner, _ARMED, armed)
    return bool(vars(runner)[_ARMED])


def flavour(runner: Any) -> Any:
    """What differs for the head of this armed runner's Talker, found out once."""
    from kstep_shim.frames.flavour import flavour_of

    if _FLAVOUR not in vars(runner):
        setattr(runner, _FLAVOUR, flavour_of(runner.get_model()))
    return vars(runner)[_FLAVOUR]
