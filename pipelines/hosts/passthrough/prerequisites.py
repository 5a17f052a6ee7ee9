"""The prerequisites of a container or virtual machine, checked before starting anything.

Nothing is fetched, nothing is left behind, and it also ends if an engine never responds.
"""

from __future__ import annotations

import contextlib
import queue
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.hosttext import safe_text
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import of_a_moment
from pipelines.hosts.gpus import Gpu, gpu_option_text, is_wanted
from pipelines.hosts.passthrough import linux, vfio, windows
from pipelines.hosts.passthrough.linux import Machine, inspect_linux_machine
from pipelines.remote.inspection import tools

_SCRIPT = Path(__file__).with_name("remote_machine.sh")
_SECONDS = 30
_MOST = 4 << 20  # most bytes of output
_ROW = re.compile(r"([FLND]) ((?:sys|dev|proc)/[\w.:/-]{1,200})(?: (\S*))?")
_SEEN = ("/sys", "/dev")


def look_at(engine: Engine, image: str) -> Machine:
    """The machine of ``engine``, read by a container of ``image``, which must have a POSIX shell.

    It runs for a second, sees ``/sys`` and ``/dev`` read-only, has no network, and is removed.
    Raises :class:`HostError` for empty output, and the engine's errors.
    """
    doing = f"inspect the machine of {engine.title}"
    with engine_errors(doing):
        container = engine.client.containers.create(
            image,
            entrypoint=["/bin/sh", "-c", _SCRIPT.read_text("utf-8"), "look"],
            command=["/host", "/proc"],
            network_mode="none",
            labels=of_a_moment("look"),
            volumes={name: {"bind": f"/host{name}", "mode": "ro"} for name in _SEEN},
        )
    try:
        with engine_errors(doing):
            container.start()
            container.wait(timeout=_SECONDS)
            output = bytes(container.logs(stdout=True, stderr=False))
    finally:
        with contextlib.suppress(Exception):
            container.remove(force=True, v=True)
    return parse_machine_listing(output.decode("utf-8", "replace"))


def parse_machine_listing(output: str) -> Machine:
    """Parse the script's output; :class:`HostError` if it is incomplete."""
    rows = output[:_MOST].splitlines()
    if not rows or rows[-1] != "END":
        raise HostError(
            f"the description of its machine was cut off: {safe_text(output[-200:], 200)}"
        )
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        root = Path(folder)
        for row in rows[:-1]:
            match = _ROW.fullmatch(row)
            if match is None or ".." in PurePosixPath(match[2]).parts:
                raise HostError(f"unexpected description of its machine: {safe_text(row, 200)}")
            _recreate_machine_entry(root / match[2], match[1], match[3] or "")
        return inspect_linux_machine(root)


def _recreate_machine_entry(path: Path, kind: str, value: str) -> None:
    if kind == "D":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "L":
        path.symlink_to(PurePosixPath(value).name)  # only its name is read
    elif kind == "F" and re.fullmatch(r"(?:[0-9a-f]{2})*", value):
        path.write_bytes(bytes.fromhex(value))
    else:
        path.touch()


#: Seconds that an engine may take to describe itself.
PATIENCE = 15.0


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The requirements of a host."""

    system: System
    """Name of its container."""
    gpu: Gpu = False
    kvm: bool = False
    """Whether a virtual machine with hardware acceleration runs in the container."""
    isolation: str = ""
    """Isolation of a Windows container; empty: the engine's default."""
    image: str = ""
    """Name of its image."""


def survey_prerequisites(
    reach: Callable[[float], Engine],
    requirements: Requirements,
    look: Callable[[], linux.Machine] = linux.inspect_linux_machine,
) -> Mapping[str, object]:
    """The facts that :mod:`pipelines.doctor.passthrough` judges, in parts.

    ``reach`` opens the engine with the given timeout. A part that could not be checked is missing,
    ``problems`` has the reason, and ``hints`` the hints for some of them.
    """
    values = {
        "system": requirements.system,
        "gpu": gpu_option_text(requirements.gpu),
        "kvm": requirements.kvm,
        "isolation": requirements.isolation,
        "image": requirements.image,
    }
    problems: dict[str, str] = {}
    hints: dict[str, str] = {}
    facts: dict[str, object] = {"wanted": values, "problems": problems, "hints": hints}
    try:
        engine = _in_time(reach)
    except PipelineError as error:
        problems["engine"], hints["engine"] = error.message, error.hint
        engine = None
    try:
        if engine is not None:
            facts |= _of_engine(engine, requirements, problems)
        if not (
            requirements.kvm or (is_wanted(requirements.gpu) and requirements.system == "linux")
        ):
            return facts
        if engine is None:
            raise HostError("the engine does not report its address")
        machine = inspect_engine_machine(engine, requirements.image, look)
    except PipelineError as error:
        problems["machine"] = f"not checked: {error.message}"
        return facts
    finally:
        if engine is not None:
            engine.close()
    facts["machine"] = machine.model_dump(mode="json")
    try:
        facts["chosen"] = list(vfio.select_gpu_slots(machine, requirements.gpu))
    except ConfigError as error:
        problems["chosen"], hints["chosen"] = error.message, error.hint
    return facts


def inspect_engine_machine(
    engine: Engine, image: str, look: Callable[[], linux.Machine] = linux.inspect_linux_machine
) -> linux.Machine:
    """The machine of a Linux engine: local files if it is this one, else read by a container.

    ``image``: one that the engine has. Raises :class:`HostError` if it does not have it, and what
    :func:`look_at` does.
    """
    if not engine.remote and sys.platform == "linux":
        return look()
    if engine.system != "linux" or not image or engine.image(image) is None:
        raise HostError("this needs the host's image, which its engine does not have yet")
    return look_at(engine, image)


def _in_time(reach: Callable[[float], Engine]) -> Engine:
    """The engine; :class:`HostError` if it does not respond in time, for whatever reason.

    A transport that hangs (ssh waiting for a password, a pipe without a server) has no timeout of
    its own, so it is left behind in a daemon thread.
    """
    answers: queue.SimpleQueue[Engine | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(reach(PATIENCE))
        except BaseException as error:  # raised again by the waiting thread
            answers.put(error)

    threading.Thread(target=ask, name="engine", daemon=True).start()
    try:
        answer = answers.get(timeout=PATIENCE)
    except queue.Empty:
        raise HostError(
            f"the engine did not answer within {PATIENCE:g} s",
            hint="Check that it responds: docker info",
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _of_engine(
    engine: Engine, requirements: Requirements, problems: dict[str, str]
) -> dict[str, object]:
    about = engine.about
    options = [str(option) for option in about.get("SecurityOptions") or ()]
    facts: dict[str, object] = {
        "engine": {
            "title": engine.title,
            "system": engine.system,
            "build": engine.build,
            "remote": engine.remote,
            "rootless": any("rootless" in option for option in options),
            "isolation": str(about.get("Isolation") or ""),
        }
    }
    if engine.system != "windows" or requirements.system != "windows":
        return facts
    facts["windows"] = windows.windows_display_name(engine.build)
    if not requirements.image:
        problems["image"] = "not checked: the project's image is built for the engine's own Windows"
    else:
        try:
            image = engine.image(requirements.image)
        except PipelineError as error:
            problems["image"] = error.message
        else:
            version = "" if image is None else str(image.get("OsVersion") or "")
            facts["image"] = None if image is None else {"version": version}
            facts["runs"] = windows.is_image_compatible(engine.build, version)
            facts["unpatched"] = windows.image_has_newer_patch(engine.patch, version)
    if is_wanted(requirements.gpu):
        if engine.remote or sys.platform != "win32":
            problems["gpus"] = "not checked: nvidia-smi on the engine's machine shows them"
        else:
            try:
                facts["gpus"] = tools.gpus()
            except OSError as error:
                problems["gpus"] = str(error)
    return facts
