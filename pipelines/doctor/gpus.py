"""Findings on GPUs, their drivers and driver models."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from pipelines.core.architectures import archs
from pipelines.core.architectures.serving import code_runs_on
from pipelines.core.finding import Finding, Level
from pipelines.core.versions import parse_release
from pipelines.doctor.model import Facts, Purpose, make_finding, on_host
from pipelines.plan.matrix.compat import Compat, applicable_rules
from pipelines.remote.inspection.nvml import BRIDGED

AREA = "GPU"
_MOST = 32
_DRIVERS = "https://www.nvidia.com/drivers"
#: Driver model -> what to know of it, and where that is said.
MODELS = {
    "TCC": (
        "for computing only; it has no memory pools (cudaMallocAsync)",
        "https://github.com/NVIDIA/cuda-python/issues/206",
    ),
    "WDDM": (
        "also draws; Windows resets it when a kernel runs for seconds (TDR)",
        "https://learn.microsoft.com/en-us/windows-hardware/drivers/display/tdr-registry-keys",
    ),
    "MCDM": ("for computing only, also in containers", ""),
    BRIDGED: ("what Windows' own driver does is not shown there", ""),
}


def judge(facts: Facts, purpose: Purpose, compat: Compat) -> Iterator[Finding]:
    """Each kind of GPU: its name, whether the wheel runs on it, its driver and driver model."""
    answer = facts.at("tools", "gpus")
    asked = purpose.gpu_asked or "gpu: true"
    wanted = f"a GPU: {asked} was asked for" if purpose.gpu else ""
    kinds: dict[tuple[str | None, ...], list[int]] = {}
    rows = (facts.rows("tools", "gpus") or [])[:_MOST]
    chosen = purpose.gpu_numbers
    for number, row in enumerate(rows):
        if chosen and number not in chosen:
            continue
        seen = tuple(row.text(key) for key in ("name", "capability", "driver", "model"))
        kinds.setdefault(seen, []).append(number)
    for (name, arch, driver, model), numbers in kinds.items():
        title = f"GPU {','.join(map(str, numbers))}"
        yield make_finding(AREA, title, "ok" if name else "unknown", name or "it reports no name")
        yield _covered(f"{title} capability", arch, purpose)
        if model == BRIDGED and driver:  # what is known of versions here is of Windows' drivers
            found = f"{driver} of Linux, whose CUDA the host's own rules judge"
            yield make_finding(AREA, f"{title} driver", "ok", found)
        else:
            yield _check_gpu_driver(f"{title} driver", driver, purpose, compat)
        yield _check_driver_model(f"{title} driver model", model)
    if rows and (missing := [n for n in chosen if n >= len(rows)]):
        hint = "name those that nvidia-smi lists there: they are counted from 0"
        found = f"there is no GPU {', '.join(map(str, missing))}, the last is {len(rows) - 1}"
        yield make_finding(AREA, "GPU", "error", found, wanted, hint)
    if rows:
        return
    if (answer.tree == [] or answer.absent) and purpose.gpu:
        hint = f"install NVIDIA's driver there ({_DRIVERS}), or set gpu: false in pipeline.yaml"
        yield make_finding(AREA, "GPU", "error", "none found", wanted, hint)
    elif answer.tree == [] or answer.absent:
        yield make_finding(
            AREA, "GPU", "ok", "none, and none is wanted: GPU tests are skipped there"
        )
    elif purpose.gpu and answer.failed:
        look = on_host("nvidia-smi", first=f"reinstall NVIDIA's driver ({_DRIVERS})")
        yield make_finding(AREA, "GPU", "error", f"not to be asked: {answer.why}", wanted, *look)
    else:
        yield make_finding(AREA, "GPU", "unknown", answer.why, wanted)


def _covered(name: str, arch: str | None, purpose: Purpose) -> Finding:
    """Whether this GPU runs what is built: SASS of its major version, not newer than itself."""
    version = parse_release(arch)
    built = purpose.target.archs
    if version is None or not str(built):
        return make_finding(AREA, name, "unknown", arch or "not reported")
    number = f"{version.major}{version.minor}"
    if any(code_runs_on(sass, number) for sass in built.sass):
        return make_finding(AREA, name, "ok", f"{arch}, which {built} covers")
    if number not in archs.supported_archs(purpose.target.cuda):
        found = f"{arch}, for which CUDA {purpose.target.cuda} does not compile"
        hint = "name a host with another GPU with --host, or set cuda in the recipe"
        return make_finding(AREA, name, "warning", found, "", hint)
    jit = any(code_runs_on(ptx, number, ptx=True) for ptx in built.ptx)
    found = f"{arch}, for which no SASS is built; " + (
        "the driver compiles the PTX" if jit else "the wheel does not run on it"
    )
    hint = f"build with --archs '{built};{number}'"
    level: Level = "error" if purpose.gpu and not jit else "warning"
    return make_finding(AREA, name, level, found, f"sm_{number} among {built}", hint)


def _check_gpu_driver(name: str, driver: str | None, purpose: Purpose, compat: Compat) -> Finding:
    version, wanted = parse_release(driver), f"one for CUDA {purpose.target.cuda}"
    if driver is None or version is None:
        return make_finding(AREA, name, "unknown", driver or "not reported", wanted)
    rules = [rule for rule in compat.rules if "driver" in rule.when]
    for rule in applicable_rules(rules, {"driver": driver, "cuda": purpose.target.cuda}):
        found = f"{driver}: {rule.says.removesuffix('.')}"
        return make_finding(AREA, name, rule.level, found, wanted, rule.hint, source=rule.source)
    cuda = purpose.target.cuda
    came = compat.toolkit_drivers.get(cuda)
    if came and version < Version(came):
        found = f"{driver} is older than CUDA {cuda}: it runs SASS, but not PTX made by it"
        hint = f"install a driver from {came} on: {_DRIVERS}"
        return make_finding(AREA, name, "warning", found, f"{came} or newer", hint)
    return make_finding(AREA, name, "ok", driver)


def _check_driver_model(name: str, model: str | None) -> Finding:
    if model not in MODELS:
        return make_finding(AREA, name, "unknown", model or "not reported", " or ".join(MODELS))
    says, source = MODELS[model]
    return make_finding(AREA, name, "ok", f"{model}: {says}", source=source)
