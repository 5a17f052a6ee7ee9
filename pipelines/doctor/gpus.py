"""Verdicts on GPUs and their drivers."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from pipelines.doctor.model import Facts, Level, Order, Verdict
from pipelines.plan.compat import Compat, broken, capability, known

AREA = "GPU"
_MODELS = ("TCC", "WDDM", "MCDM")


def gpus(facts: Facts, order: Order, compat: Compat) -> Iterator[Verdict]:
    """Each GPU: its name, whether the wheel runs on it, its driver and driver model."""
    tools = facts.at("tools")
    rows = tools.rows("gpus")
    if rows:
        for number, row in enumerate(rows[:16]):
            yield from _gpu(f"GPU {number}", row, order, compat)
        return
    absent = rows == [] or tools.at("gpus").absent
    if absent and order.gpu:
        cure = "install NVIDIA's driver there, or set gpu: false for it in pipeline.yaml"
        yield Verdict(AREA, "GPU", "error", "none found", "gpu: true in pipeline.yaml", cure)
    elif absent:
        yield Verdict(AREA, "GPU", "ok", "none, and none is wanted: GPU tests are skipped there")
    else:
        yield Verdict(AREA, "GPU", "unknown", tools.at("gpus").why)


def _gpu(name: str, row: Facts, order: Order, compat: Compat) -> Iterator[Verdict]:
    told, arch, driver = row.text("name"), row.text("capability"), row.text("driver")
    yield Verdict(AREA, name, "ok" if told else "unknown", told or "without a name")
    yield _covered(name, arch, order)
    yield _driver(name, driver, order, compat)
    model = row.text("model")
    level: Level = "ok" if model in _MODELS else "unknown"
    wanted = " or ".join(_MODELS)
    yield Verdict(AREA, f"{name} driver model", level, model or "not told", wanted)


def _covered(name: str, arch: str | None, order: Order) -> Verdict:
    """Whether this GPU runs what is built: SASS of its major version, not newer than itself."""
    title = f"{name} capability"
    version = known(arch)
    if version is None:
        return Verdict(AREA, title, "unknown", arch or "not told")
    if any(_runs(built, version) for built in order.archs):
        return Verdict(AREA, title, "ok", str(arch))
    if not order.archs:
        return Verdict(AREA, title, "unknown", f"{arch}; no architectures were asked for")
    number = f"{version.major}{version.minor}"
    return Verdict(
        AREA,
        title,
        "warning",
        f"{arch}: no SASS for it is built, at best the driver compiles PTX",
        f"sm_{number} among the architectures",
        f"build with --archs '{';'.join(order.archs)};{number}'",
    )


def _runs(built: str, gpu: Version) -> bool:
    """Whether SASS for ``built`` runs on ``gpu``: the same major version, at most as new."""
    version = Version(capability(built))
    if built.endswith("a"):
        return version == gpu
    return version.major == gpu.major and version <= gpu


def _driver(name: str, driver: str | None, order: Order, compat: Compat) -> Verdict:
    title = f"{name} driver"
    version = known(driver)
    if driver is None or version is None:
        return Verdict(AREA, title, "unknown", driver or "not told")
    rules = [rule for rule in compat.rules if "driver" in rule.when]
    wanted = f"for CUDA {order.cuda}"
    for rule in broken(rules, {"driver": driver, "cuda": order.cuda}):
        return Verdict(AREA, title, rule.verdict, f"{driver}: {rule.says}", wanted, rule.cure)
    came = compat.toolkit_drivers.get(order.cuda)
    if came and version < Version(came):
        found = f"{driver} is older than CUDA {order.cuda}: it runs SASS, but not PTX made by it"
        cure = f"install a driver from {came} on: https://www.nvidia.com/drivers"
        return Verdict(AREA, title, "warning", found, f"{came} or newer", cure)
    return Verdict(AREA, title, "ok", driver)
