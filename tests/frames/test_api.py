"""The documented names, their signatures, and what importing them costs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import pytest

from kstep_shim import frames, multi_frame

REQUIRED = inspect.Parameter.empty


def parameters(function: object) -> list[tuple[str, object, bool]]:
    return [
        (parameter.name, parameter.default, parameter.kind is inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("name", "documented"),
    [
        ("applies", "model model_kwargs_extra"),
        ("is_multi_token_decode", "model model_kwargs_extra"),
        ("narrow_replay_enabled", "runner"),
        ("drafts_this_step", "runner"),
        ("ensure_stop_token_vocab", "runner logits"),
        ("neutralize_kstep_min_tokens", "logitsprocs"),
        ("end_narrow_step", "forward_context narrow"),
    ],
)
def test_positional_signatures(name: str, documented: str) -> None:
    given = parameters(getattr(multi_frame, name))
    names = documented.split()
    assert given[: len(names)] == [(one, REQUIRED, False) for one in names]
    # Whatever is added to the documented signature is optional.
    assert all(default is not REQUIRED for _, default, _ in given[len(names) :])


def test_constant_drafts_signature() -> None:
    assert parameters(multi_frame.constant_drafts) == [
        ("valid_sampled_token_ids", REQUIRED, False),
        ("frames", REQUIRED, False),
        ("num_reqs", REQUIRED, False),
        ("scheduled_draft_counts", None, False),
        ("fold_short_rows", False, False),
    ]


@pytest.mark.parametrize(
    ("name", "documented", "optional"),
    [
        (
            "run",
            "model run_model after_forward inputs_embeds input_ids frames model_kwargs "
            "model_kwargs_extra",
            {"narrow", "tail"},
        ),
        (
            "begin_narrow_step",
            "runner forward_context frames positions inputs_embeds spans",
            {"notices"},
        ),
    ],
)
def test_keyword_only_signatures(name: str, documented: str, optional: set[str]) -> None:
    given = parameters(getattr(multi_frame, name))
    assert all(keyword_only for _, _, keyword_only in given)
    assert [one for one, default, _ in given if default is REQUIRED] == documented.split()
    assert {one for one, default, _ in given if default is None} == optional


def test_everything_promised_is_there() -> None:
    assert all(hasattr(multi_frame, name) for name in multi_frame.__all__)


def test_importing_it_imports_no_vllm() -> None:
    code = (
        "import sys; from kstep_shim import multi_frame; "
        "print([m for m in sys.modules if m.split('.')[0] in ('vllm', 'vllm_ascend', 'vllm_omni')])"
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(frames.__path__)])
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(f"kstep_shim.frames.{name}")
    assert doctest.testmod(module).failed == 0
