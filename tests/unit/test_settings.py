"""Settings: what is accepted, what is refused and how, and what is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstep_shim import KStepError, Settings
from kstep_shim.settings import resolve_frames
from kstep_shim.variables import switched, unknown


@pytest.mark.parametrize("text", ["0", "17", "-1", "eight", "08", " 8", "8.0", "1_6", "٨"])
def test_a_bad_frame_count_names_variable_value_and_range(text: str) -> None:
    with pytest.raises(KStepError) as caught:
        Settings.from_environ({"KSTEP_SHIM_FRAMES": text})
    message = str(caught.value)
    assert "KSTEP_SHIM_FRAMES" in message
    assert repr(text) in message
    assert "from 1 to 16" in message
    assert "unset" in message


@pytest.mark.parametrize("value", [0, 17, -1, "eight", 8.0, True])
def test_a_bad_frame_count_is_refused_as_an_argument(value: object) -> None:
    with pytest.raises(KStepError, match="from 1 to 16"):
        Settings(frames=value)  # type: ignore[arg-type]
    with pytest.raises(KStepError, match=r"install\(frames=\)"):
        resolve_frames(argument=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KSTEP_SHIM_NARROW", "yes"),
        ("KSTEP_SHIM_NARROW", "ON"),
        ("KSTEP_SHIM_STRICT", "true"),
        ("KSTEP_SHIM_ALLOW_UNTESTED", "2"),
        ("KSTEP_SHIM_DEBUG", "no"),
        ("KSTEP_SHIM_DISABLE", "verify,,drafter"),
    ],
)
def test_a_bad_token_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(KStepError, match=name):
        Settings.from_environ({name: text})


def test_the_switch_tells_unset_from_zero() -> None:
    assert switched({}) is None
    assert switched({"KSTEP_SHIM": ""}) is None
    assert switched({"KSTEP_SHIM": "0"}) is False
    assert switched({"KSTEP_SHIM": "1"}) is True
    with pytest.raises(KStepError, match="KSTEP_SHIM="):
        switched({"KSTEP_SHIM": "on"})


def test_unknown_variables_are_named_with_the_nearest_known_one() -> None:
    environ = {"KSTEP_SHIM": "1", "KSTEP_SHIM_STATUSDIR": "/x", "KSTEP_SHIM_X": "", "OTHER": "1"}
    near, far = unknown(environ)
    assert near.startswith("KSTEP_SHIM_STATUSDIR is no variable")
    assert near.endswith("did you mean KSTEP_SHIM_STATUS_DIR?")
    assert far.startswith("KSTEP_SHIM_X is no variable")


def test_empty_means_unset() -> None:
    names = ["FRAMES", "NARROW", "STRICT", "DISABLE", "ALLOW_UNTESTED", "STATUS_DIR", "DEBUG"]
    assert Settings.from_environ({f"KSTEP_SHIM_{name}": "" for name in names}) == Settings()


def test_frames_are_resolved_in_the_documented_order() -> None:
    environ = {"KSTEP_SHIM_FRAMES": "2"}
    given_settings = Settings(frames=3)
    everything = {"argument": 4, "settings": given_settings, "environ": environ}
    assert resolve_frames(yaml=5, **everything) == (5, "yaml")  # type: ignore[arg-type]
    assert resolve_frames(**everything) == (4, "install")  # type: ignore[arg-type]
    assert resolve_frames(settings=given_settings, environ=environ) == (3, "settings")
    assert resolve_frames(settings=Settings(), environ=environ) == (2, "environment")
    assert resolve_frames(settings=Settings(), environ={}) == (8, "default")


def test_disable_is_a_set_of_names() -> None:
    assert Settings.from_environ({"KSTEP_SHIM_DISABLE": "warmup, drafter"}).disable == {
        "warmup",
        "drafter",
    }
    with pytest.raises(KStepError, match="a set of patch names"):
        Settings(disable="warmup")  # type: ignore[arg-type]


_SETTINGS = st.builds(
    Settings,
    frames=st.integers(1, 16),
    narrow=st.sampled_from(["auto", "on", "off"]),
    strict=st.booleans(),
    disable=st.frozensets(st.sampled_from(["warmup", "drafter", "verify"])),
    allow_untested=st.booleans(),
    status_dir=st.none() | st.just("/somewhere/else"),
    debug=st.booleans(),
)


@given(_SETTINGS)
def test_a_child_reads_what_was_exported(settings: Settings) -> None:
    exported = {name: text for name, text in settings.to_environ().items() if text is not None}
    assert switched(exported) is True
    assert Settings.from_environ(exported) == settings


def test_a_difference_is_put_in_words() -> None:
    assert Settings(frames=4).difference(Settings(frames=4)) == ""
    assert Settings(frames=4).difference(Settings(frames=2)) == "frames=4 instead of 2"


def test_a_status_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KStepError, match="KSTEP_SHIM_STATUS_DIR"):
        Settings(status_dir=str(tmp_path / "file")).check_status_dir()
    Settings(status_dir=str(tmp_path / "new")).check_status_dir()
