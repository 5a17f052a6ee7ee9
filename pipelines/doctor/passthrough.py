"""Findings on what a container or virtual machine stands on, before anything of it is started."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding, Level
from pipelines.doctor import vfio
from pipelines.doctor.gpus import MODELS
from pipelines.doctor.model import Facts, make_finding
from pipelines.doctor.vfio import AREA

_PATCHES = "https://github.com/microsoft/Windows-Containers/issues/591"
_VERSIONS = (
    "https://learn.microsoft.com/en-us/virtualization/windowscontainers/"
    "deploy-containers/version-compatibility"
)
_CLASS = (
    "https://learn.microsoft.com/en-us/virtualization/windowscontainers/"
    "deploy-containers/gpu-acceleration"
)
_MOST = 8  # names in one verdict


def judge(facts: Facts) -> Iterator[Finding]:
    """The engine; KVM, IOMMU, VFIO and each card; or isolation, builds and driver of a Windows."""
    wanted = facts.at("wanted")
    yield _engine(facts)
    if wanted.text("system") == "windows":
        yield from _check_windows_container(facts)
    else:
        yield from vfio.judge(facts)


def _engine(facts: Facts) -> Finding:
    wanted, system = facts.text("wanted", "system") or "", facts.text("engine", "system")
    title = facts.text("engine", "title") or ""
    need = f"an engine for {wanted.title()} containers"
    if system is None:
        hint = facts.text("hints", "engine", limit=400) or "see that it runs: docker info"
        level: Level = "error" if facts.at("engine").failed else "unknown"
        return make_finding(AREA, "engine", level, facts.at("engine").why, need, hint)
    if system != wanted:
        hint = f"name an engine for {wanted.title()} with 'engine' of the host in pipeline.yaml"
        return make_finding(AREA, "engine", "error", f"{title}, for {system.title()}", need, hint)
    return make_finding(AREA, "engine", "ok", title)


def _check_windows_container(facts: Facts) -> Iterator[Finding]:
    if facts.text("engine", "system") != "windows":
        return  # the engine's own verdict says so
    asked = facts.text("wanted", "isolation")
    isolation = asked or facts.text("engine", "isolation")
    gpu = facts.text("wanted", "gpu") or ""
    yield _isolation(isolation, gpu, asked=bool(asked))
    yield _check_image_windows_build(facts, isolation)
    if gpu:
        yield _driver_model(facts, gpu)


def _isolation(isolation: str | None, gpu: str, *, asked: bool) -> Finding:
    name = "isolation"
    if isolation is None:
        return make_finding(AREA, name, "unknown", "the engine reports no default")
    found = isolation if asked else f"{isolation}, the engine's own"
    if gpu and isolation != "process":
        wanted = f"process: {gpu}, and only it is given a class of devices"
        hint = "set 'isolation: process' for the host, or 'gpu: false'"
        return make_finding(AREA, name, "error", found, wanted, hint, source=_CLASS)
    return make_finding(AREA, name, "ok", found)


def _check_image_windows_build(facts: Facts, isolation: str | None) -> Finding:
    name, host = "Windows of the image", facts.text("windows") or "not reported"
    answer = facts.at("image")
    version = answer.text("version")
    if answer.absent:
        return make_finding(
            AREA, name, "unknown", "the image is not at the engine yet", f"for {host}"
        )
    if version is None:
        return make_finding(AREA, name, "unknown", answer.why, f"for {host}")
    found = f"{version} on {host}"
    if isolation == "hyperv":
        return make_finding(AREA, name, "ok", f"{found}, each with its own kernel")
    fits = facts.flag("runs")
    if fits is None:
        wanted = "a pair of builds that Microsoft supports"
        return make_finding(AREA, name, "unknown", found, wanted, source=_VERSIONS)
    if fits:
        if not facts.flag("unpatched"):
            return make_finding(AREA, name, "ok", found)
        wanted = "an image without updates that are missing from the engine's Windows"
        hint = "install them there, or take the image of an earlier month"
        level: Level = "warning"
    else:
        wanted = "an image that this Windows runs under process isolation"
        hint = "take the image of the engine's Windows, or 'isolation: hyperv', which has no GPU"
        level = "error"
    source = _PATCHES if fits else _VERSIONS
    return make_finding(AREA, name, level, found, wanted, hint, source=source)


def _driver_model(facts: Facts, gpu: str) -> Finding:
    name, wanted = "driver model", "WDDM or MCDM"
    rows = facts.rows("gpus")
    if rows is None and not facts.at("gpus").absent:
        return make_finding(AREA, name, "unknown", facts.at("gpus").why, wanted)
    if not rows:
        hint = "install NVIDIA's driver on the engine's machine, or set gpu: false"
        return make_finding(
            AREA, name, "error", "no NVIDIA GPU with a driver", f"{gpu}, {wanted}", hint
        )
    models = [row.text("model") or "not reported" for row in rows]
    found = ", ".join(models[:_MOST])
    if "TCC" in models:
        hint = "on the engine's machine as administrator, then restart it"
        return make_finding(
            AREA, name, "error", found, wanted, hint, "nvidia-smi -dm WDDM", source=_CLASS
        )
    if any(model not in MODELS for model in models):
        return make_finding(AREA, name, "unknown", found, wanted)
    return make_finding(AREA, name, "ok", found)
