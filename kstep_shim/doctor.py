"""Would a deployment started from this environment run K frames? Answered without importing it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kstep_shim import guards
from kstep_shim.catalog import patches, select
from kstep_shim.deployment import Deployment
from kstep_shim.errors import KStepError
from kstep_shim.frames import stage
from kstep_shim.launching import BOOTSTRAP, RAY_PREFIX, RAY_PREFIXES, split_list
from kstep_shim.settings import SWITCH, Settings, resolve_frames, switched

PLATFORM_GROUP = "vllm.platform_plugins"


class Verdict(StrEnum):
    """Outcome of one check."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    verdict: Verdict
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain JSON types."""
        return asdict(self)


def examine(environ: Mapping[str, str], deployment: Deployment | None = None) -> Iterator[Check]:
    """Look at versions, settings, carriers, patch points and, if given, a deploy YAML.

    Parameters
    ----------
    environ
        The environment that the deployment would be started with.
    deployment
        What it would be started with, as `kstep_shim.deployment.read_deployment` returns it.
    """
    yield from _versions(environ)
    settings, check = _settings(environ)
    yield check
    yield from _carriers(environ)
    yield from _patch_points(settings)
    if deployment is not None:
        yield from _stages(deployment, environ, settings)


def _versions(environ: Mapping[str, str]) -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", Verdict.PASS, python)
    wrapt = guards.installed_version("wrapt")
    problem = "wrapt is not installed" if wrapt is None else guards.wrapt_problem(wrapt)
    yield Check("wrapt", Verdict.FAIL if problem else Verdict.PASS, problem or str(wrapt))
    allowed = environ.get("KSTEP_SHIM_ALLOW_UNTESTED") == "1"
    for name, tested in guards.TESTED_VERSIONS.items():
        found = guards.installed_version(name)
        if found is None:
            yield Check(name, Verdict.FAIL, f"not installed here (tested: {', '.join(tested)})")
            continue
        problem = guards.version_problem({name: tested})
        bad = Verdict.WARN if allowed else Verdict.FAIL
        yield Check(name, bad if problem else Verdict.PASS, problem or found)


def _settings(environ: Mapping[str, str]) -> tuple[Settings, Check]:
    try:
        settings = Settings.from_environ(environ)
        settings.check_status_dir()
        select(settings)
        on = switched(environ)
        frames, source = resolve_frames(environ=environ)
    except KStepError as error:
        return Settings(), Check("settings", Verdict.FAIL, str(error))
    if on:
        return settings, Check("settings", Verdict.PASS, f"on, K={frames} ({source})")
    way_out = "unset it, or set it to 1" if on is False else "set KSTEP_SHIM=1 or call install()"
    state = f"{SWITCH}=0" if on is False else f"{SWITCH} is not set"
    return settings, Check("settings", Verdict.WARN, f"off ({state}): {way_out}")


def _carriers(environ: Mapping[str, str]) -> Iterator[Check]:
    problem = guards.carrier_problem(environ)
    reason = problem or f"entry point {guards.PLUGIN_GROUP}: {guards.PLUGIN_NAME}"
    allowed = environ.get("VLLM_PLUGINS")
    if problem is None and allowed is not None and guards.PLUGIN_NAME not in split_list(allowed):
        reason = f"the bootstrap directory {BOOTSTRAP} on PYTHONPATH"
    yield Check("stages are armed by", Verdict.FAIL if problem else Verdict.PASS, reason)
    if allowed is not None:
        platforms = {e.name for e in importlib.metadata.entry_points(group=PLATFORM_GROUP)}
        lost = sorted(platforms - set(split_list(allowed)))
        reason = f"VLLM_PLUGINS={allowed} also filters out the platform {', '.join(lost)}: add it"
        kept = f"VLLM_PLUGINS={allowed} lets everything through that is needed"
        yield Check(
            "VLLM_PLUGINS", Verdict.WARN if lost else Verdict.PASS, reason if lost else kept
        )
    if guards.installed_version("ray") is not None:
        copied = any(RAY_PREFIX.startswith(p) for p in split_list(environ.get(RAY_PREFIXES)))
        reason = (
            f"{RAY_PREFIXES} covers the settings"
            if copied
            else f"Ray workers do not get the settings: export {RAY_PREFIXES}={RAY_PREFIX} (no "
            f"underscore at its end, or {SWITCH} itself stays behind)"
        )
        yield Check("Ray", Verdict.PASS if copied else Verdict.WARN, reason)


def _patch_points(settings: Settings) -> Iterator[Check]:
    for patch in patches():
        name = f"patch {patch.name}"
        bad = Verdict.FAIL if patch.required else Verdict.WARN
        if patch.name in settings.disable:
            yield Check(name, bad, "left out by KSTEP_SHIM_DISABLE")
            continue
        problem = guards.static_patch_problem(patch)
        yield Check(name, bad if problem else Verdict.PASS, problem or patch.summary)


def _stages(
    deployment: Deployment, environ: Mapping[str, str], settings: Settings
) -> Iterator[Check]:
    talker = deployment.talker
    if talker is None:
        yield Check("deploy YAML", Verdict.WARN, "no stage 1 of MiniCPM-o 4.5: nothing to do")
        return
    for entry in deployment.stages:
        if entry is not talker:
            yield Check(f"stage {entry.stage_id}", Verdict.PASS, "not touched")
    try:
        on = switched(environ)
        frames, source = resolve_frames(environ=environ)
    except KStepError:
        return  # Reported with the settings.
    arguments = talker.as_arguments()
    if not on and arguments.speculative_config:
        yield Check(
            "stage 1",
            Verdict.WARN,
            "speculative_config without the shim: the stock stack crashes at the first drafted "
            "step; switch the shim on or take the key out",
        )
        return
    if on is False:
        yield Check("stage 1", Verdict.PASS, "one frame per step: the shim is vetoed")
        return
    plan = stage.plan_stage(arguments, frames, source)
    if plan.refusal is not None:
        yield Check("stage 1", Verdict.FAIL, f"one frame per step: {plan.refusal}")
        return
    replicas = f", {talker.replicas} replicas" if talker.replicas > 1 else ""
    switch = "" if on else ", once the shim is on"
    yield Check("stage 1", Verdict.PASS, f"K={plan.frames} ({plan.source}){replicas}{switch}")
    if plan.frames > 1:
        for warning in stage.stage_warnings(arguments, plan.frames):
            yield Check("stage 1", Verdict.WARN, warning)
