"""What the simulated Windows engine does, without a word of HTTP: images, containers, volumes."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine_box import Box, Exec, Programs

from pipelines.remote.safe_paths import unpack_member

#: What it refuses, in moby's words (b985e2313a86, 29.7.2): the status, the text.
_TEXTS = {
    # daemon/daemon_windows.go:113
    "cpus": (400, "range of CPUs is from 0.01 to {0}.00, as there are only {0} CPUs available"),
    # daemon/errors.go:63, :38, :19, daemon/images/image.go:33
    "name_clash": (409, 'Conflict. The container name "/{0}" is already in use'),
    "no_container": (404, "No such container: {0}"),
    "not_running": (409, "container {0} is not running"),
    "no_image": (404, "No such image: {0}"),
    # https://github.com/microsoft/Windows-Containers/issues/399
    "version": (
        500,
        "hcs::CreateComputeSystem {0}: The container operating system does not match the host "
        "operating system.",
    ),
    # vendor/github.com/Microsoft/hcsshim/errors.go:123
    "no_program": (
        400,
        "container {0} encountered an error during hcs::System::CreateProcess: failure in a "
        "Windows system call: The system cannot find the file specified. (0x2)",
    ),
    # daemon/internal/distribution/errors.go:57, pull_v2_windows.go:144
    "pull_unknown": (404, "manifest for {0} not found: manifest unknown: manifest unknown"),
    "pull_newer": (200, "a Windows version {0}-based image is incompatible with a {1} host"),
}
#: Options that are refused wherever they are set: daemon/daemon_windows.go:118 to 163,
#: daemon/internal/runconfig/hostconfig_windows.go:40 to 59, daemon/volume/mounts/windows_parser.go.
_UNSUPPORTED = re.compile(
    r"Privileged|ReadonlyRootfs|CpuRealtime\w+|Tmpfs|Blkio\w+|CgroupParent|CpuPeriod|Cpuset\w+"
    r"|Memory(Reservation|Swap|Swappiness)|OomKillDisable|PidsLimit|Ulimits"
)
#: Builds that a host runs with process isolation, besides its own:
#: https://learn.microsoft.com/en-us/virtualization/windowscontainers/deploy-containers/version-compatibility
_PROCESS_ISOLATION = {"26100": ("20348",)}


class Refused(Exception):  # noqa: N818 - an answer, as others are
    """An answer that is an error: its status and its text."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status, self.says = status, says


def refusal(which: str, *values: object) -> Refused:
    """One of those above, filled in."""
    status, says = _TEXTS[which]
    return Refused(status, says.format(*values))


def runs(host: str, version: str, isolation: str) -> bool:
    """Whether a host of one build (such as 20348) runs an image of another."""
    if isolation == "hyperv":
        return int(version) <= int(host)
    return version == host or version in _PROCESS_ISOLATION.get(host, ())


def image(
    name: str,
    *,
    version: str = "10.0.20348.2700",
    system: str = "windows",
    command: Sequence[str] = (r"c:\windows\system32\cmd.exe",),
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What an engine knows of an image."""
    digest = "sha256:" + hashlib.sha256(f"{name} {version}".encode()).hexdigest()
    repository = re.sub(r"(@sha256:.*|:[^/:]+)$", "", name)
    return {
        "Id": digest,
        "RepoTags": [] if "@" in name else [name],
        "RepoDigests": [name if "@" in name else f"{repository}@{digest}"],
        "Created": "2026-10-14T00:00:00Z",
        "Architecture": "amd64",
        "Os": system,
        "OsVersion": version if system == "windows" else "",
        "Size": 2_000_000_000,
        "Config": {"Cmd": list(command), "Env": [], "Labels": labels or {}},
        "RootFS": {"Type": "layers", "Layers": []},
    }


class WindowsEngine:
    """Docker on a Windows Server (or on another Windows) as far as this project meets it."""

    def __init__(
        self,
        place: Path,
        *,
        build: str = "20348",
        isolation: str = "process",
        cpus: int = 4,
        programs: Programs | None = None,
    ) -> None:
        self.place, self.build, self.isolation, self.cpus = place, build, isolation, cpus
        self.images: dict[str, dict[str, Any]] = {}
        #: What can be pulled: an image, or the text with which the stream ends.
        self.registry: dict[str, dict[str, Any] | str] = {}
        #: Answers of a build, line by line.
        self.building: list[dict[str, Any]] = [{"stream": "Step 1/1 : FROM scratch\n"}]
        self.boxes: dict[str, Box] = {}
        self.execs: dict[str, Exec] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        #: Puts the driver of this machine's GPU into a System32; without one there is no GPU.
        self.driver: Callable[[Path], object] | None = None
        #: What reads its input to the end, and what never ends.
        standing = {"cmd": ["cat"], "findstr": ["cat"], "ping": ["sleep", "86400"]}
        self.programs: Programs = {
            **{name: lambda _, argv=argv: argv for name, argv in standing.items()},  # type: ignore[misc]
            **(programs or {}),
        }
        self._lock = threading.RLock()
        self._count = 0

    # -- the engine ------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        name = {"20348": "Windows Server 2022", "26100": "Windows Server 2025"}.get(self.build)
        return {
            "ID": "simulated",
            "OSType": "windows",
            "OperatingSystem": f"Microsoft {name or 'Windows'} (OS Build {self.build}.2700)",
            "OSVersion": f"10.0.{self.build}",
            "Architecture": "x86_64",
            "Isolation": self.isolation,
            "Driver": "windowsfilter",
            "ServerVersion": "29.1.5",
            "NCPU": self.cpus,
            "MemTotal": 17179869184,
            "Name": "WIN-SIMULATED",
            "DockerRootDir": r"C:\ProgramData\docker",
            "Warnings": None,
        }

    def version(self) -> dict[str, Any]:
        return {
            "Version": "29.1.5",
            "ApiVersion": "1.52",
            "MinAPIVersion": "1.44",
            "Os": "windows",
            "Arch": "amd64",
        }

    # -- images ----------------------------------------------------------------------------------

    def find_image(self, name: str) -> dict[str, Any]:
        known = self.images.get(name) or self.images.get(f"{name}:latest")
        for one in self.images.values():
            if name in (one["Id"], one["Id"][7:], *one["RepoDigests"]):
                known = one
        if known is None:
            raise refusal("no_image", name)
        return known

    def add_image(self, name: str, **keys: Any) -> dict[str, Any]:
        self.images[name] = made = image(name, **keys)
        return made

    def pull(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of a pull; what is wrong with the image itself ends the stream."""
        found = self.registry.get(name)
        if found is None:
            raise refusal("pull_unknown", name)
        yield {"status": f"Pulling from {name}", "id": "ltsc2022"}
        if isinstance(found, str):
            yield {"errorDetail": {"message": found}, "error": found}
            return
        if text := self._incompatible(found):
            yield {"errorDetail": {"message": text}, "error": text}
            return
        for done in (1, 2):
            detail = {"current": done << 30, "total": 2 << 30}
            yield {"status": "Downloading", "id": "5c8b3a", "progressDetail": detail}
        self.images[name] = found
        yield {"status": f"Digest: {found['Id']}"}
        yield {"status": f"Status: Downloaded newer image for {name}"}

    def _incompatible(self, found: dict[str, Any]) -> str:
        if int(found["OsVersion"].split(".")[2]) > int(self.build):
            version = ".".join(found["OsVersion"].split(".")[:3])
            return refusal("pull_newer", version, f"10.0.{self.build}").says
        return ""

    # -- containers ------------------------------------------------------------------------------

    def find(self, name: str) -> Box:
        for box in self.boxes.values():
            if name == box.name or box.id.startswith(name):
                return box
        raise refusal("no_container", name)

    def create(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        host = asked.get("HostConfig") or {}
        self._verify(host)
        found = self.find_image(asked["Image"])
        with self._lock:
            self._count += 1
            identity = hashlib.sha256(f"{self.place} {self._count}".encode()).hexdigest()
            name = name or f"simulated_{self._count}"
            for box in self.boxes.values():
                if box.name == name:
                    raise refusal("name_clash", name)
            if not host.get("Isolation"):  # createContainerOSSpecificSettings, create_windows.go
                host["Isolation"] = self.isolation
            asked["HostConfig"] = host
            box = Box(identity, name, asked, found, self.place)
            box.programs = self.programs
            for mount in host.get("Mounts") or []:
                if mount["Type"] == "volume":
                    self._mount(box, mount)
            self.boxes[identity] = box
        return {"Id": identity, "Warnings": []}

    def _mount(self, box: Box, mount: dict[str, Any]) -> None:
        """A named volume, made where it is missing: a directory that stays."""
        labels = (mount.get("VolumeOptions") or {}).get("Labels") or {}
        made = {"Name": mount["Source"], "Driver": "local", "Labels": labels}
        self.volumes.setdefault(mount["Source"], made)
        kept = self.place / "volumes" / mount["Source"]
        kept.mkdir(parents=True, exist_ok=True)
        place = box.path(mount["Target"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(kept)

    def _verify(self, host: dict[str, Any]) -> None:
        """verifyContainerSettings of daemon/container.go and daemon/daemon_windows.go."""
        if not 0 <= (host.get("NanoCpus") or 0) <= self.cpus * 10**9:
            raise refusal("cpus", self.cpus)
        for key, value in host.items():
            if value and _UNSUPPORTED.fullmatch(key):
                raise Refused(400, f"invalid option: Windows does not support {key}")

    def start(self, name: str) -> int:
        """204, or 304 where it runs; what only the start finds is refused here."""
        box = self.find(name)
        if box.status == "running":
            return 304
        try:
            self._specify(box)
        except Refused as refused:
            box.error, box.code = refused.says, box.code or 128
            if box.host.get("AutoRemove"):
                self.remove(box.id)
            raise
        box.ending = threading.Thread(target=self._until_it_ends, args=(box,), daemon=True)
        box.ending.start()
        return 204

    def _specify(self, box: Box) -> None:
        """CreateSpec of oci_windows.go, then createWindows of local_windows.go, then HCS."""
        hyperv = box.host["Isolation"].lower() == "hyperv"
        if box.host.get("Devices") and self.driver:  # as HostDriverStore, by its name here
            self.driver(box.root / r"C:\Windows\System32")
        build = box.image["OsVersion"].split(".")[2]
        if not runs(self.build, build, "hyperv" if hyperv else "process"):
            raise refusal("version", box.id)
        argv = box.local(_command(box))
        if argv is None:
            raise refusal("no_program", box.id)
        box.start(argv, dict(one.split("=", 1) for one in box.asked.get("Env") or []))

    def _until_it_ends(self, box: Box) -> None:
        with box.changed:
            box.changed.wait_for(lambda: box.status != "running")
        if box.host.get("AutoRemove") and not box.restarting:
            self._forget(box)

    def restart(self, name: str) -> None:
        """Stop and start; what would be removed at its end is not, this time."""
        box = self.find(name)
        box.restarting = True
        box.stop()
        if box.ending is not None:
            box.ending.join(30)
        self.start(name)
        box.restarting = False

    def remove(self, name: str) -> None:
        box = self.find(name)
        if box.status == "running":
            box.stop()
        if box.removed:
            raise refusal("no_container", name)
        self._forget(box)

    def _forget(self, box: Box) -> None:
        with self._lock:
            if self.boxes.pop(box.id, None) is not None:
                with box.changed:
                    box.removed = True
                    box.changed.notify_all()
                shutil.rmtree(box.root, ignore_errors=True)

    def listing(self, everything: bool, filters: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            box.summary()
            for box in list(self.boxes.values())
            if (everything or box.status == "running") and _matches(box, filters)
        ]

    def exec_create(self, name: str, asked: dict[str, Any]) -> Exec:
        box = self.find(name)
        if box.status != "running":
            raise refusal("not_running", box.id)
        identity = hashlib.sha256(os.urandom(16)).hexdigest()
        self.execs[identity] = made = Exec(identity, box, asked)
        box.execs.append(made)
        return made

    # -- files -----------------------------------------------------------------------------------

    def extract(self, name: str, path: str, data: bytes) -> None:
        place = self.find(name).path(path)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                unpack_member(archive, member, place, "what a test has packed")
                (place / member.name).chmod(member.mode)


def _command(box: Box) -> list[str]:
    """What runs: mergeAndVerifyConfig and Merge, daemon/container/../runconfig of moby."""
    entry, words = box.asked.get("Entrypoint"), box.asked.get("Cmd")
    config = box.image["Config"]
    if not entry:
        words = words or config.get("Cmd")
        entry = config.get("Entrypoint") if entry is None else []
    return [*(entry or []), *(words or [])]


def _matches(box: Box, filters: dict[str, Any]) -> bool:
    """All the labels, one of the names, states or ids."""
    for label in filters.get("label", ()):
        key, equals, value = label.partition("=")
        if key not in box.labels or (equals and box.labels[key] != value):
            return False
    names = [*filters.get("name", ())]
    states = [*filters.get("status", ())]
    return (not names or any(re.search(name, f"/{box.name}") for name in names)) and (
        not states or box.status in states
    )
