"""What a model must offer before its frames may share a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from toy_stack import ToyTalker

from kstep_shim.frames import contract
from kstep_shim.frames.contract import REQUIRED_MEMBERS, MultiFrameTalker, supports_multi_frame


@pytest.mark.parametrize(
    "model", [None, object(), SimpleNamespace(supports_multi_frame_decode=False)]
)
def test_without_the_flag_nothing_is_asked(model: Any) -> None:
    assert supports_multi_frame(model) is False


def test_a_flag_without_members_names_all_of_them() -> None:
    with pytest.raises(TypeError) as error:
        supports_multi_frame(SimpleNamespace(supports_multi_frame_decode=True))
    for name in REQUIRED_MEMBERS:
        assert name in str(error.value)


@pytest.mark.parametrize("missing", REQUIRED_MEMBERS)
def test_only_missing_members_are_named(missing: str) -> None:
    members = {name: None for name in REQUIRED_MEMBERS if name != missing}
    with pytest.raises(TypeError, match=f"lacks {missing}$"):
        supports_multi_frame(SimpleNamespace(supports_multi_frame_decode=True, **members))


def test_a_whole_model_is_an_instance_of_the_protocol() -> None:
    model = ToyTalker()
    assert supports_multi_frame(model) is True
    assert isinstance(model, MultiFrameTalker)


def test_a_graph_wrapper_that_delegates_is_enough() -> None:
    class Wrapper:
        def __init__(self, runnable: Any) -> None:
            self.runnable = runnable

        def __getattr__(self, name: str) -> Any:
            return getattr(self.runnable, name)

    assert supports_multi_frame(Wrapper(ToyTalker())) is True


def test_the_list_does_not_come_from_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "MultiFrameTalker", object())
    assert supports_multi_frame(ToyTalker()) is True


def test_the_list_is_the_protocol_without_the_flag() -> None:
    declared = {name for name in vars(MultiFrameTalker) if not name.startswith("_")}
    declared |= set(MultiFrameTalker.__annotations__)
    assert set(REQUIRED_MEMBERS) == declared - {"supports_multi_frame_decode"}


def test_the_holder_has_a_public_name_only() -> None:
    assert not [name for name in REQUIRED_MEMBERS if name.startswith("_")]
