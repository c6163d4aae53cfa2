"""Would a deployment started from this environment run K frames? Answered without importing it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kstep_shim import guards, variables
from kstep_shim.catalog import patches, select
from kstep_shim.deployment import DeployedStage, Deployment
from kstep_shim.errors import KStepError
from kstep_shim.frames import stage
from kstep_shim.launching import (
    BOOTSTRAP,
    RAY_COPIES_ALL,
    RAY_PREFIX,
    RAY_PREFIXES,
    split_list,
)
from kstep_shim.settings import Settings, resolve_frames
from kstep_shim.variables import SWITCH, switched

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
    settings, setting = _settings(environ)
    unknown = [Check("variables", Verdict.WARN, text) for text in variables.unknown(environ)]
    with guards.reading():
        points = list(_patch_points(settings))
    found = [*_versions(environ), setting, *unknown, *_carriers(environ), *points]
    yield from found
    if deployment is not None:
        failed = next((check for check in found if check.verdict is Verdict.FAIL), None)
        yield from _stages(deployment, environ, failed)


def _versions(environ: Mapping[str, str]) -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", Verdict.PASS, python)
    wrapt = guards.installed_version("wrapt")
    problem = "wrapt is not installed" if wrapt is None else guards.wrapt_problem(wrapt)
    yield Check("wrapt", Verdict.FAIL if problem else Verdict.PASS, problem or str(wrapt))
    allowed = environ.get("KSTEP_SHIM_ALLOW_UNTESTED") == "1"
    odd, bad = guards.untested(), Verdict.WARN if allowed else Verdict.FAIL
    installed = {name: guards.installed_version(name) for name in guards.TESTED_STACKS[0]}
    on_cuda = all(found for name, found in installed.items() if name != guards.PLATFORM)
    for name, found in installed.items():
        if name in odd:
            yield Check(name, bad, guards.version_problem() or "")
        elif found is None and name == guards.PLATFORM and on_cuda:
            yield Check(name, Verdict.PASS, "not installed: a stack for CUDA")
        elif found is None:
            tested = ", ".join(dict.fromkeys(s[name] for s in guards.TESTED_STACKS if name in s))
            yield Check(name, Verdict.FAIL, f"not installed here (tested: {tested})")
        else:
            yield Check(name, Verdict.PASS, found)


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
    allowed = guards.allowed_plugins(environ)
    kept_out = allowed is not None and guards.PLUGIN_NAME not in allowed
    reason = problem or f"entry point {guards.PLUGIN_GROUP}: {guards.PLUGIN_NAME}"
    if problem is None and kept_out:
        reason = f"the bootstrap directory {BOOTSTRAP} on PYTHONPATH"
    yield Check("stages are armed by", Verdict.FAIL if problem else Verdict.PASS, reason)
    if allowed is not None:
        yield _plugins(environ["VLLM_PLUGINS"], allowed, needs_ours=problem is not None)
    if guards.installed_version("ray") is not None:
        yield _ray(environ)


def _plugins(text: str, allowed: list[str], *, needs_ours: bool) -> Check:
    needed = {e.name for e in importlib.metadata.entry_points(group=PLATFORM_GROUP)}
    lost = sorted(needed.difference(allowed))
    if needs_ours and guards.PLUGIN_NAME not in allowed:
        lost.append(guards.PLUGIN_NAME)
    if not lost:
        return Check("VLLM_PLUGINS", Verdict.PASS, f"{text} lets everything through that is needed")
    verdict = Verdict.FAIL if guards.PLUGIN_NAME in lost else Verdict.WARN
    return Check("VLLM_PLUGINS", verdict, f"{text} filters out {' and '.join(lost)}: add it")


def _ray(environ: Mapping[str, str]) -> Check:
    if environ.get(RAY_COPIES_ALL, "1") != "0":
        return Check("Ray", Verdict.PASS, "vLLM's Ray executor copies the whole environment")
    if any(RAY_PREFIX.startswith(prefix) for prefix in split_list(environ.get(RAY_PREFIXES))):
        return Check("Ray", Verdict.PASS, f"{RAY_PREFIXES} covers the settings")
    return Check(
        "Ray",
        Verdict.WARN,
        f"with {RAY_COPIES_ALL}=0, Ray workers do not get the settings: export "
        f"{RAY_PREFIXES}={RAY_PREFIX} (no underscore at its end, or {SWITCH} itself stays behind)",
    )


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
    deployment: Deployment, environ: Mapping[str, str], failed: Check | None
) -> Iterator[Check]:
    talker = deployment.talker
    if talker is None:
        yield Check("deploy YAML", Verdict.WARN, "no stage 1 of MiniCPM-o 4.5: nothing to do")
        return
    for entry in deployment.stages:
        if entry is not talker:
            yield Check(f"stage {entry.stage_id}", Verdict.PASS, "not touched")
    yield from _talker(talker, environ, failed)


def _talker(
    talker: DeployedStage, environ: Mapping[str, str], failed: Check | None
) -> Iterator[Check]:
    try:
        on = switched(environ)
        frames, source = resolve_frames(environ=environ)
    except KStepError:
        return  # Reported with the settings.
    arguments = talker.as_arguments()
    if not on and arguments.speculative_config:
        yield Check(
            "stage 1",
            Verdict.FAIL,
            "speculative_config without the shim: the stock stack crashes at the first drafted "
            f"step; set {SWITCH}=1 (here as well, if the launcher calls install()), or take the "
            "key out",
        )
        return
    if on is False:
        yield Check("stage 1", Verdict.PASS, "one frame per step: the shim is vetoed")
        return
    plan = stage.plan_stage(arguments, frames, source)
    refusal = plan.refusal
    if refusal is None and plan.frames > 1 and failed is not None:
        refusal = f"{failed.name}: {failed.reason}"
    if refusal is not None:
        yield Check("stage 1", Verdict.FAIL, f"one frame per step: {refusal}")
        return
    replicas = f", {talker.replicas} replicas" if talker.replicas > 1 else ""
    switch = "" if on else ", once the shim is on"
    yield Check("stage 1", Verdict.PASS, f"K={plan.frames} ({plan.source}){replicas}{switch}")
    if plan.frames > 1:
        for warning in stage.stage_warnings(arguments, plan.frames):
            yield Check("stage 1", Verdict.WARN, warning)
