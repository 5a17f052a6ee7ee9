"""What a container or a virtual machine stands on, surveyed before anything of it is started.

Nothing is fetched for it, nothing stays, and it ends also where an engine never answers.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.gpus import Gpu, is_wanted, written
from pipelines.hosts.passthrough import elsewhere, linux, vfio, windows
from pipelines.remote.inspection import tools

#: How long an engine may take to say what it is, seconds.
PATIENCE = 15.0


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a host asks of what it stands on."""

    system: System
    """Of its container."""
    gpu: Gpu = False
    kvm: bool = False
    """Whether a virtual machine runs in the container, with the processor's help."""
    isolation: str = ""
    """Of a Windows container; empty: the engine's own."""
    image: str = ""
    """Its name at the engine."""


def survey(
    reach: Callable[[float], Engine],
    wanted: Wanted,
    look: Callable[[], linux.Machine] = linux.look,
) -> Mapping[str, object]:
    """The facts that :mod:`pipelines.doctor.passthrough` judges, by parts.

    ``reach`` opens the engine, with the seconds that an answer of it may take. A part that was not
    looked at is missing, and ``problems`` has the reason; ``hints`` what is done about some.
    """
    asked = {
        "system": wanted.system,
        "gpu": written(wanted.gpu),
        "kvm": wanted.kvm,
        "isolation": wanted.isolation,
        "image": wanted.image,
    }
    problems: dict[str, str] = {}
    hints: dict[str, str] = {}
    found: dict[str, object] = {"wanted": asked, "problems": problems, "hints": hints}
    try:
        engine = _in_time(reach)
    except PipelineError as error:
        problems["engine"], hints["engine"] = error.message, error.hint
        engine = None
    try:
        if engine is not None:
            found |= _of_engine(engine, wanted, problems)
        if not (wanted.kvm or (is_wanted(wanted.gpu) and wanted.system == "linux")):
            return found
        if engine is None:
            raise HostError("the engine does not say where it is")
        machine = machine_of(engine, wanted.image, look)
    except PipelineError as error:
        problems["machine"] = f"not looked at: {error.message}"
        return found
    finally:
        if engine is not None:
            engine.close()
    found["machine"] = machine.model_dump(mode="json")
    try:
        found["chosen"] = list(vfio.choose(machine, wanted.gpu))
    except ConfigError as error:
        problems["chosen"], hints["chosen"] = error.message, error.hint
    return found


def machine_of(
    engine: Engine, image: str, look: Callable[[], linux.Machine] = linux.look
) -> linux.Machine:
    """The machine of a Linux engine: these files if it is on this one, else a container looks.

    ``image``: one that the engine has. Raises :class:`HostError` where it has not, and what
    :func:`.elsewhere.look_at` does.
    """
    if not engine.remote and sys.platform == "linux":
        return look()
    if engine.system != "linux" or not image or engine.image(image) is None:
        raise HostError("that takes the host's image, which its engine does not have yet")
    return elsewhere.look_at(engine, image)


def _in_time(reach: Callable[[float], Engine]) -> Engine:
    """The engine; :class:`HostError` if it does not answer in time, whatever holds it up.

    A way that hangs (ssh that waits for a password, a pipe that nobody serves) has no time limit of
    its own, so it is left behind in a thread that does not keep the process.
    """
    answers: queue.SimpleQueue[Engine | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(reach(PATIENCE))
        except BaseException as error:  # it is raised again by whoever waits
            answers.put(error)

    threading.Thread(target=ask, name="engine", daemon=True).start()
    try:
        told = answers.get(timeout=PATIENCE)
    except queue.Empty:
        raise HostError(
            f"the engine has not answered within {PATIENCE:g} s",
            hint="Does it answer you? Type: docker info",
        ) from None
    if isinstance(told, BaseException):
        raise told
    return told


def _of_engine(engine: Engine, wanted: Wanted, problems: dict[str, str]) -> dict[str, object]:
    about = engine.about
    options = [str(one) for one in about.get("SecurityOptions") or ()]
    found: dict[str, object] = {
        "engine": {
            "title": engine.title,
            "system": engine.system,
            "build": engine.build,
            "remote": engine.remote,
            "rootless": any("rootless" in one for one in options),
            "isolation": str(about.get("Isolation") or ""),
        }
    }
    if engine.system != "windows" or wanted.system != "windows":
        return found
    found["windows"] = windows.name(engine.build)
    if not wanted.image:
        problems["image"] = "not looked at: ours is made for the engine's own Windows"
    else:
        try:
            told = engine.image(wanted.image)
        except PipelineError as error:
            problems["image"] = error.message
        else:
            version = "" if told is None else str(told.get("OsVersion") or "")
            found["image"] = None if told is None else {"version": version}
            found["runs"] = windows.runs(engine.build, version)
            found["unpatched"] = windows.unpatched(engine.patch, version)
    if is_wanted(wanted.gpu):
        if engine.remote or sys.platform != "win32":
            problems["gpus"] = "not looked at: nvidia-smi on the engine's machine says it"
        else:
            try:
                found["gpus"] = tools.gpus()
            except OSError as error:
                problems["gpus"] = str(error)
    return found
