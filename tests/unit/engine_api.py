"""What the simulated Windows engine does, without a word of HTTP: images, containers, volumes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine_box import Box, Exec, Programs, now
from engine_rules import RULES, Refused

from pipelines.remote.safe_paths import unpack_member

_UNIT = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


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


def size_of(text: str) -> int:
    """As moby reads a size: 120g, 127GB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", text.strip().lower())
    if not found:
        raise RULES.refusal("storage_size", size=text)
    return int(float(found[1]) * _UNIT[found[2]])


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
        #: Directories and files of the host: what bind mounts may name, and which is a directory.
        self.files: dict[str, bool] = {}
        self.taken: set[int] = set()
        #: Puts the driver of this machine's GPU into a System32; without one there is no GPU.
        self.driver: Callable[[Path], object] | None = None
        #: What reads its input to the end, and what never ends.
        standing = {"cmd": ["cat"], "findstr": ["cat"], "ping": ["sleep", "86400"]}
        self.programs: Programs = {
            **{name: lambda _, argv=argv: argv for name, argv in standing.items()},  # type: ignore[misc]
            **(programs or {}),
        }
        self.events: list[dict[str, Any]] = []
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

    def _tell(self, kind: str, action: str, box: Box) -> None:
        attributes = {"name": box.name, **box.labels}
        self.events.append(
            {
                "Type": kind,
                "Action": action,
                "status": action,
                "id": box.id,
                "Actor": {"ID": box.id, "Attributes": attributes},
                "time": int(time.time()),
            }
        )

    # -- images ----------------------------------------------------------------------------------

    def find_image(self, name: str) -> dict[str, Any]:
        known = self.images.get(name) or self.images.get(f"{name}:latest")
        for one in self.images.values():
            if name in (one["Id"], one["Id"][7:], *one["RepoDigests"]):
                known = one
        if known is None:
            raise RULES.refusal("no_image", image=name)
        return known

    def add_image(self, name: str, **keys: Any) -> dict[str, Any]:
        self.images[name] = made = image(name, **keys)
        return made

    def pull(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of a pull; what is wrong with the image itself ends the stream."""
        found = self.registry.get(name)
        if found is None:
            raise RULES.refusal("pull_unknown", image=name)
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
        if found["Os"] != "windows":
            return RULES.refusal("pull_other_system", build=f"10.0.{self.build}").says
        if int(found["OsVersion"].split(".")[2]) > int(self.build):
            version = ".".join(found["OsVersion"].split(".")[:3])
            return RULES.refusal("pull_newer", image=version, build=f"10.0.{self.build}").says
        return ""

    def load(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The events of a load: an image of another system ends the stream."""
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            stream = archive.extractfile("manifest.json")
            assert stream is not None
            for one in json.load(stream):
                config = archive.extractfile(one["Config"])
                assert config is not None
                system = json.load(config)["os"]
                if system != "windows":
                    text = RULES.refusal("load_other", system=system).says
                    yield {"errorDetail": {"message": text}, "error": text}
                    return
                for name in one["RepoTags"]:
                    self.add_image(name)
                    yield {"stream": f"Loaded image: {name}\n"}

    # -- containers ------------------------------------------------------------------------------

    def find(self, name: str) -> Box:
        for box in self.boxes.values():
            if name == box.name or box.id.startswith(name):
                return box
        raise RULES.refusal("no_container", name=name)

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
                    raise RULES.refusal("name_clash", name=name, id=box.id)
            size = (host.get("StorageOpt") or {}).get("size", "0")
            size_of(size)
            if not host.get("Isolation"):  # createContainerOSSpecificSettings, create_windows.go
                host["Isolation"] = self.isolation
            asked["HostConfig"] = host
            box = Box(identity, name, asked, found, self.place)
            box.programs = self.programs
            for mount in host.get("Mounts") or []:
                if mount["Type"] == "volume":
                    self._mount(box, mount)
            self.boxes[identity] = box
        self._tell("container", "create", box)
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
        for mount in host.get("Mounts") or []:
            if mount["Type"] != "bind":
                continue
            if mount["Source"] not in self.files:
                raise RULES.refusal("bind_missing", source=mount["Source"])
            if not self.files[mount["Source"]]:
                raise RULES.refusal("bind_file")
        isolation = (host.get("Isolation") or "").lower()
        if isolation not in ("", "default", "process", "hyperv"):
            raise RULES.refusal("isolation", isolation=host["Isolation"])
        nano = host.get("NanoCpus") or 0
        for row in RULES.create:
            if row.option.startswith("Blkio") and not 0 <= nano <= self.cpus * 10**9:
                raise RULES.refusal("cpus", cpus=self.cpus)
            value = host.get(row.option)
            if row.option == "MemorySwappiness":  # fixMemorySwappiness: -1 is not set
                value = value is not None and value != -1
            if value:
                raise Refused(400, row.says)

    def start(self, name: str) -> int:
        """204, or 304 where it runs; what only the start finds is refused here."""
        box = self.find(name)
        if box.status == "running":
            return 304
        try:
            self._connect(box)
            self._specify(box)
        except Refused as refused:
            box.error, box.code, box.ports = refused.says, box.code or 128, {}
            if box.host.get("AutoRemove"):
                self.remove(box.id, force=True)
            raise
        box.ending = threading.Thread(target=self._until_it_ends, args=(box,), daemon=True)
        box.ending.start()
        self._tell("container", "start", box)
        return 204

    def _connect(self, box: Box) -> None:
        for port, bindings in (box.host.get("PortBindings") or {}).items():
            for one in bindings or [{}]:
                if one.get("HostIp") not in (None, "", "0.0.0.0", "::"):  # noqa: S104
                    raise RULES.refusal("host_address", name=box.name)
                wanted = int(one.get("HostPort") or 0)
                others = {
                    int(bound["HostPort"])
                    for other in self.boxes.values()
                    for bounds in other.ports.values()
                    for bound in bounds
                }
                if wanted in self.taken | others:
                    raise RULES.refusal("port_taken", name=box.name)
                box.ports[port] = [{"HostIp": "0.0.0.0", "HostPort": str(wanted or _free())}]  # noqa: S104

    def _specify(self, box: Box) -> None:
        """createSpec of oci_windows.go, then createWindows of local_windows.go, then HCS."""
        for option in box.host.get("SecurityOpt") or []:
            if "=" not in option:
                raise RULES.refusal("security_option", option=option)
        devices = box.host.get("Devices") or []
        hyperv = box.host["Isolation"].lower() == "hyperv"
        for device in devices:
            path = device["PathOnHost"]
            if not path.startswith("class/") and "://" not in path:
                raise RULES.refusal("device_path", path=path)
        if devices and hyperv:
            raise RULES.refusal("device_hyperv")
        for device in devices:
            kind = device["PathOnHost"].partition("://")[0]
            if not kind.startswith("class") and kind != "vpci-class-guid":
                raise RULES.refusal("device_type", type=kind)
        if devices and self.driver:  # as HostDriverStore; what Python calls it on this machine
            self.driver(box.root / r"C:\Windows\System32")
        build = box.image["OsVersion"].split(".")[2]
        if not RULES.runs(self.build, build, "hyperv" if hyperv else "process"):
            raise RULES.refusal("version", id=box.id)
        argv = box.local(_command(box))
        if argv is None:
            box.code = 127
            raise RULES.refusal("no_program", id=box.id)
        box.start(argv, dict(one.split("=", 1) for one in box.asked.get("Env") or []))

    def _until_it_ends(self, box: Box) -> None:
        with box.changed:
            box.changed.wait_for(lambda: box.status != "running")
        self._tell("container", "die", box)
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

    def remove(self, name: str, *, force: bool) -> None:
        box = self.find(name)
        if box.status == "running":
            if not force:
                raise RULES.refusal("running", name=name)
            box.stop()
        if box.removed:
            raise RULES.refusal("no_container", name=name)
        self._forget(box)

    def _forget(self, box: Box) -> None:
        with self._lock:
            if self.boxes.pop(box.id, None) is not None:
                self._tell("container", "destroy", box)
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
            raise RULES.refusal("not_running", id=box.id)
        identity = hashlib.sha256(os.urandom(16)).hexdigest()
        self.execs[identity] = made = Exec(identity, box, asked)
        box.execs.append(made)
        return made

    # -- files -----------------------------------------------------------------------------------

    def _files_of(self, name: str) -> Box:
        box = self.find(name)
        if box.status == "running" and box.host["Isolation"].lower() == "hyperv":
            raise RULES.refusal("archive_hyperv")
        return box

    def archive(self, name: str, path: str) -> tuple[str, bytes]:
        """What is said of a file or directory, and a tar of it."""
        box = self._files_of(name)
        place = box.path(path)
        if not place.exists():
            raise RULES.refusal("no_file", path=path, name=name)
        base = path.replace("\\", "/").rstrip("/").rpartition("/")[2] or "/"
        about = place.stat()
        mode = about.st_mode & 0o777 | (1 << 31 if place.is_dir() else 0)
        stat = {"name": base, "size": about.st_size, "mode": mode, "mtime": now(), "linkTarget": ""}
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.add(place, base)
        return base64.b64encode(json.dumps(stat).encode()).decode(), made.getvalue()

    def extract(self, name: str, path: str, data: bytes) -> None:
        box = self._files_of(name)
        place = box.path(path)
        if not place.exists():
            raise RULES.refusal("no_file", path=path, name=name)
        if not place.is_dir():
            raise Refused(400, "extraction point is not a directory")
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


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
