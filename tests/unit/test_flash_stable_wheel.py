"""The wheel of flash-attn-stable as the recipe makes it, and what genuine installers do with it.

Upstream's archive is a small one with the same layout, and a torch that is none compiles nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from foreign_wheels import foreign
from test_install_commands import python_with, unpack
from test_patches import sdist

from pipelines.core.paths import PACKAGE
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import SourceTree
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.slow


UPSTREAM = {
    "LICENSE": "BSD 3-Clause License",
    "AUTHORS": "Tri Dao",
    "setup.py": "raise SystemExit('upstream')",
    "csrc/cutlass/include/cutlass/version.h": "/* Copyright (c) NVIDIA */",
    "flash_attn/__init__.py": '__version__ = "2.8.3.post2"',
    "flash_attn/cute/__init__.py": "raise AttributeError('stale')",
    "flash_attn/layers/__init__.py": "",
    "flash_attn/layers/rotary.py": "import triton",
    "hopper/__init__.py": "",
}
#: What setup.py of ours takes of torch, and of CUDA.
TORCH = {
    "EULA.txt": "NVIDIA",
    "VC/bin/Hostx64/x64/cl": "#!/bin/sh\n",
    "VC/libcxx/LICENSE.TXT": "Apache License v2.0 with LLVM Exceptions",
    "bin/nvcc": "#!/bin/sh\necho release 13.0, V13.0.88\n",
    "torch/__init__.py": "from torch import version",
    "torch/version.py": "cuda = '13.0'",
    "torch/utils/cpp_extension.py": """
from pathlib import Path
from setuptools import Extension as CppExtension
from setuptools.command.build_ext import build_ext
class BuildExtension(build_ext):
    def build_extension(self, ext):
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
""",
}
#: As flash-attn-4's wheels are: that directory, and no flash_attn/__init__.py.
CUTE = {"flash_attn/cute/__init__.py": b"VALUE = 4\n", "flash_attn/cute/interface.py": b""}
README = PACKAGE / "recipes/flash-attn-stable/README-stable.md"
DOCUMENTED = re.findall(r"(?m)^python -m pip install (.+)$", README.read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the recipe's own tree, by the call that each front end makes."""
    room, recipe = tmp_path_factory.mktemp("wheel"), load_recipe("flash-attn-stable")
    cache, data = Cache(load_lock(), room / "cache", offline=True), sdist(UPSTREAM)
    assert isinstance(recipe.source, FileSource)
    pin = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    source = recipe.source.model_copy(update=pin)
    place = cache.place(source.file, source.sha256)
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    recipe = recipe.model_copy(update={"source": source, "patches": ()})
    packed = SourceTree(recipe, cache).pack().data
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(room / "tree")  # noqa: S202 - ours
    for name, text in TORCH.items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_text(text, "utf-8")
    compilers = room / "VC/bin/Hostx64/x64"
    for program in (room / "bin/nvcc", compilers / "cl"):
        program.chmod(0o755)
    own = {"PYTHONPATH": str(room), "CUDA_HOME": str(room), "FLASH_ATTN_LOCAL_VERSION": "cu130"}
    own["PATH"] = os.pathsep.join((str(compilers), os.environ["PATH"]))
    build = "from setuptools.build_meta import build_wheel; build_wheel('../made')"
    done = subprocess.run(
        [sys.executable, "-c", build],
        cwd=room / "tree",
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = (room / "made").iterdir()
    return made


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.partition(".dist-info/")[2] or name: archive.read(name)
            for name in archive.namelist()
        }


def test_what_the_wheel_says_of_itself(wheel: Path, files: dict[str, bytes]) -> None:
    """Plain torch: a bound makes pip replace a CUDA build by the index's, which may be for the CPU.

    Its name and top_level.txt are what ``importlib.metadata.packages_distributions`` reads, which
    transformers asks whose ``flash_attn`` it is.
    """
    assert wheel.name.startswith("flash_attn-2.8.3.post2+cu130-py3-none-")
    metadata = message_from_bytes(files["METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("flash_attn", "2.8.3.post2+cu130")
    triton = 'triton-windows; sys_platform == "win32" and extra == "triton"'
    assert metadata.get_all("Requires-Dist") == ["torch", "einops", triton]
    assert files["top_level.txt"].split() == [b"flash_attn", b"flash_attn_2_cuda"]


def test_what_is_in_it(files: dict[str, bytes]) -> None:
    """Nothing of FlashAttention 3 and 4; whose code is in it."""
    own = {name for name in files if "/" in name and not name.startswith("licenses/")}
    library = "dll" if os.name == "nt" else "so"
    assert own == {
        *("flash_attn/__init__.py", "flash_attn/layers/__init__.py", "flash_attn/layers/rotary.py"),
        *("flash_attn_2_cuda/__init__.py", "flash_attn_2_cuda/_build_info.json"),
        f"flash_attn_2_cuda/_C.{library}",
    }
    for name in ("LICENSE", "AUTHORS", "csrc/cutlass/include/cutlass/version.h"):
        assert files[f"licenses/{name}"].decode() == UPSTREAM[name]
    assert b"Apache License" in files["licenses/csrc/stable/LICENSE"]
    for name, text in (("CUDA.txt", "EULA.txt"), ("LLVM.txt", "VC/libcxx/LICENSE.TXT")):
        assert files[f"licenses/licenses/{name}"].decode() == TORCH[text]


@pytest.fixture(scope="module")
def shelf(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an index: the wheel, newer sources, a newer torch for the CPU, and FlashAttention 4."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / wheel.name).write_bytes(wheel.read_bytes())
    foreign(folder, "torch", "2.12.0")
    foreign(folder, "einops", "0.8")
    foreign(folder, "flash_attn_4", "4.0.0b36", requires=["torch"], files=CUTE)
    for place, version in ((".", "2.8.4"), ("sources", "2.8.3.post2")):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / f"flash_attn-{version}.tar.gz").write_bytes(sdist(UPSTREAM))
    return folder


class Environment:
    """A Python with a torch for CUDA, and the installers that work on it."""

    def __init__(self, room: Path, shelf: Path) -> None:
        self.python, self.shelf = python_with(room, "here") / "bin/python", shelf
        (self.site,) = room.glob("here/lib/python3*/site-packages")
        unpack(foreign(room / "torch", "torch", "2.9.1+cu128"), self.site)

    def run(self, client: str, *words: str, fails: bool = False) -> str:
        """What it says to that; from the shelf alone."""
        uv = str(Path(sys.executable).with_name("uv"))
        start = [uv] if client == "uv" else [str(self.python), "-m"]
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PIP_", "UV_", "PYTHON"))}
        done = subprocess.run(
            [*start, "pip", *words, *(["--python", str(self.python)] if client == "uv" else [])],
            env=kept | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"},
            cwd=self.shelf,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout + done.stderr

    def install(self, client: str, *words: str) -> str:
        return self.run(client, "install", "--no-index", "--find-links", ".", *words)

    @property
    def files(self) -> dict[str, bytes]:
        found = (path for path in self.site.rglob("flash_attn*/**/*") if path.suffix == ".py")
        return {path.relative_to(self.site).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def made(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"), shelf)


@pytest.fixture
def environment(made: Environment) -> Environment:
    """Without what another test has left there."""
    for path in made.site.glob("flash_attn*"):
        shutil.rmtree(path)
    return made


@pytest.mark.parametrize("client", ["pip", "uv"])
def test_flash_attn_4_comes_and_goes(
    environment: Environment, files: dict[str, bytes], client: str
) -> None:
    """Before it and after it, and each is whole when the other is gone."""
    ours = {name: data for name, data in files.items() if name.endswith(".py")}
    for name in ("flash-attn==2.8.3.post2", "flash-attn-4==4.0.0b36"):
        environment.install(client, "--no-deps", name)
    assert environment.files == ours | CUTE
    quiet = ["--yes"] if client == "pip" else []
    environment.run(client, "uninstall", *quiet, "flash-attn")
    assert environment.files == CUTE
    environment.install(client, "--no-deps", "flash-attn==2.8.3.post2")
    assert environment.files == ours | CUTE
    environment.run(client, "uninstall", *quiet, "flash-attn-4")
    assert environment.files == ours


PIN = "flash-attn==2.8.3.post2 --only-binary flash-attn"


@pytest.mark.parametrize(
    ("client", "words", "replaced"),
    [
        *(("pip", text, False) for text in DOCUMENTED),
        ("pip", f"--upgrade {PIN}", False),
        ("pip", f"--upgrade --upgrade-strategy eager {PIN}", True),
        ("uv", PIN, False),
        ("uv", f"--upgrade-package flash-attn {PIN}", False),
        ("uv", f"--upgrade {PIN}", True),
    ],
)
def test_torch_stays_unless_it_is_to_be_replaced(
    environment: Environment, wheel: Path, client: str, words: str, *, replaced: bool
) -> None:
    """As README-stable.md says; torch 2.9 is refused at import, in words."""
    words = words.replace('"', "").replace("win_amd64", wheel.stem.partition("-none-")[2])
    said = environment.install(client, "--dry-run", *words.split())
    assert re.search(r"flash[-_]attn.*2\.8\.3\.post2\+cu130", said)
    assert bool(re.search(r"torch[-=]+2\.12", said)) == replaced, said


def test_where_no_wheel_fits_nothing_is_compiled(environment: Environment) -> None:
    """Only sources have the version."""
    words = DOCUMENTED[0].replace('"', "").split()
    options = ["--no-index", "--find-links", "sources", *words]
    said = environment.run("pip", "install", "--no-deps", *options, fails=True)
    assert "No matching distribution found for flash-attn==2.8.3.post2" in said
