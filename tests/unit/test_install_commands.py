"""Each command that a page, ``which.py`` or a document prints, run by genuine pips and uv.

There is an index of ours and a public one, which has a newer source distribution and a plain wheel
of the same project. With ``-m faults`` it is all of docs/evidence/install-commands.md.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from foreign_wheels import foreign
from indexes import cuda_wheel, finished, offers_of, served
from pasted import PAGE, TORCH, URL, WANTED, filled, noting_pip
from test_which_file import SMI

from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.which.answer import FORMS, format_for_shell, pip_installs, uv_installs

DOCS = Path(__file__).parents[2] / "docs"
OWN = f"cp3{sys.version_info[1]}"
TAG = f"{OWN}-{OWN}-linux_x86_64"
PROJECT = '[project]\nname = "x"\nversion = "1"\nrequires-python = "~={}.0"\n'.format(
    ".".join(map(str, sys.version_info[:2]))
)
#: pip of this environment is the third one, which needs no network. The oldest is what Python
#: 3.10.0 brought.
PIPS = ("21.2.4", "26.3")
#: What is in an environment -> what pip and uv do then; ``refused``: with an error and as it was.
SITUATIONS = {
    "none": ("installed", "installed"),
    "plain": ("installed", "installed"),
    "of another CUDA": ("installed", "installed"),
    "broken": ("installed", "installed"),
    "another build": ("installed", "installed"),
    "without RECORD": ("refused", "installed"),
    "torch not to be had": ("refused", "refused"),
    "swapped": ("refused", "refused"),
}
WHICH, INDEX, VARIANTS = "which.py", "publish.md, pip", "publish.md, variants"
UV_PROJECT = PAGE[-1]
FORMS_OF_PIP = (*FORMS, WHICH, INDEX)
FORMS_OF_UV = (UV_PROJECT, f"{WHICH}, uv", VARIANTS)
#: Here which.py says that it does not fit, or knows nothing of what the server has.
NOT_WHICH = "torch not to be had"


def outcome_of(form: str, client: str, situation: str) -> str:
    if form.startswith(WHICH) and situation == NOT_WHICH:
        return "-"
    if (form, situation) == (VARIANTS, "without RECORD"):
        return "installed, two records"  # of two versions; uv cannot remove the old one
    return SITUATIONS[situation][client == "uv"]


def cases() -> Iterator[object]:
    """Forms, clients and situations; the first of each kind is slow, the others are faults."""
    for forms, clients in ((FORMS_OF_PIP, ("here", *PIPS)), (FORMS_OF_UV, ("uv",))):
        for form in forms:
            for client in clients:
                plain = (form, client) in {("bash", "here"), (UV_PROJECT, "uv")}
                if client == "here" and not plain:
                    continue
                for situation in SITUATIONS:
                    if outcome_of(form, client, situation) == "-":
                        continue
                    marks = pytest.mark.slow if plain else pytest.mark.faults
                    yield pytest.param(form, client, situation, marks=marks)


@dataclass(frozen=True)
class Places:
    """Addresses of the indexes, and the wheels for what is there before."""

    ours: str
    swapped: str
    link: str
    """Of the wheel, from the first page of ours."""
    public: str
    built: Path
    """Is there if somebody has built the source distribution."""
    wheels: Path


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    room = tmp_path_factory.mktemp("places")
    cells = (("2.8", "12.8"), ("2.9", "13.0"))
    runs = [finished(room / "out", tag=TAG, torch=t, cuda=c, archs="80;90") for t, c in cells]
    publish_wheels(
        Store(str(room / "ours")), Order(offers_of(runs, untested=False)), say=lambda _: None
    )
    page = (room / "ours/index.html").read_text()
    (link,) = re.findall('<th scope="row"><a href="([^"]+2Bcu128torch2.8[^"]+)"', page)
    shutil.copytree(room / "ours", room / "swapped")
    for path in (room / "swapped/files").rglob("*.whl"):
        with path.open("ab") as stream:
            stream.write(b"x")
    public = room / "public/simple"
    for name, version in (("torch", TORCH), ("torch", "2.9.1+cu130"), ("einops", "0.8")):
        (public / name).mkdir(parents=True, exist_ok=True)
        foreign(public / name, name, version)
    (public / "demo-attn").mkdir()
    plain = {"demo_attn/__init__.py": b"BUILT = 'plain'\n"}
    foreign(public / "demo-attn", "demo_attn", "2.8.3", files=plain)
    newer = "demo_attn-2.8.3.post2"
    with tarfile.open(public / f"demo-attn/{newer}.tar.gz", "w:gz") as archive:
        for name, text in {
            "setup.py": f"open({str(room / 'built')!r}, 'w')\nraise SystemExit('built')\n",
            "PKG-INFO": "Metadata-Version: 2.1\nName: demo_attn\nVersion: 2.8.3.post2\n",
        }.items():
            about = tarfile.TarInfo(f"{newer}/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    wheels = room / "wheels"
    torch = {"torch/__init__.py": b"", "torch/version.py": b"__version__ = '2.8.0+cu128'\n"
             b"cuda = '12.8'\n"}  # fmt: skip
    foreign(wheels, "torch", TORCH, files=torch)
    foreign(wheels / "plain", "demo_attn", "2.8.3", files=plain)
    cuda_wheel(wheels / "of another CUDA", local="cu130torch2.9", tag=TAG)
    other = {"demo_attn/__init__.py": b"BUILT = 'other'\n"}
    cuda_wheel(wheels / "another build", tag=TAG, more=other)
    with (
        served(room / "ours") as ours,
        served(room / "swapped") as swapped,
        served(room / "public") as address,
    ):
        yield Places(ours, swapped, link, f"{address}/simple/", room / "built", wheels)


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where virtual environments are, each with another pip."""
    return tmp_path_factory.mktemp("pythons")


def python_with(pythons: Path, client: str) -> Path:
    """One with that pip; skips the test where the index of packages cannot be asked for it."""
    made = pythons / client
    if made.is_dir():
        return made
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python3*/site-packages")
    if client == "here":
        import pip

        shutil.copytree(Path(pip.__file__).parent, site / "pip")
    elif client != "uv":
        command = [sys.executable, "-m", "pip", "download", "--no-deps", f"pip=={client}"]
        done = subprocess.run([*command, "-d", str(made)], capture_output=True, check=False)
        if done.returncode:
            shutil.rmtree(made)
            pytest.skip(f"pip {client} cannot be had from the index of packages")
        (wheel,) = made.glob("pip-*.whl")
        unpack(wheel, site)
    return made


def unpack(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # noqa: S202 - ours, or pip's


@dataclass(frozen=True)
class Environment:
    """A project with an environment, in which commands are pasted."""

    room: Path
    places: Places

    @property
    def site(self) -> Path:
        (site,) = self.room.glob(".venv/lib/python3*/site-packages")
        return site

    @property
    def variables(self) -> dict[str, str]:
        """As a person has them: the public index is what pip and uv ask by themselves."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "UV_", "NV_", "VIRTUAL_ENV", "PYTHONPATH"))
        }
        return kept | {
            "PATH": f"{self.room / '.venv/bin'}:{self.room / 'bin'}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.room / ".venv"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.places.public,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_DEFAULT_INDEX": self.places.public,
            "UV_CACHE_DIR": str(self.room / "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.8",
            "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0",
        }

    def has(self, situation: str) -> None:
        """Put there what a situation has."""
        same = "another build"  # of the very version
        wanted = {one: one for one in ("plain", "of another CUDA", same)}
        wanted |= {"broken": same, "without RECORD": same, "swapped": "of another CUDA"}
        unpack(next(self.places.wheels.glob("torch-*.whl")), self.site)
        next(self.site.glob("torch-*.dist-info")).joinpath("untouched").touch()
        if folder := wanted.get(situation):
            unpack(next((self.places.wheels / folder).glob("*.whl")), self.site)
        if situation == "broken":
            (self.site / "demo_attn/__init__.py").unlink()
        if situation == "without RECORD":
            next(self.site.glob("demo_attn-*.dist-info/RECORD")).unlink()

    def paste(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.room,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def printed(self) -> dict[str, str]:
        """What which.py, fetched from the index, prints in that environment."""
        which = subprocess.run(
            ["python", "-c", f"import urllib.request as u; a={self.places.ours + '/which.py'!r};"
             "r=u.Request(a,headers={'User-Agent':'which.py'});"
             "import sys; sys.argv[1:]=['--json', '--no-load'];"
             "exec(compile(u.urlopen(r).read(),a,'exec'))"],
            env=self.variables, cwd=self.room, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, str] = json.loads(which.stdout)["wheels"]["demo-attn"]["typed"]
        return found

    @property
    def state(self) -> tuple[str, int, bool]:
        """What of demo-attn is there, how often, and whether torch is what it was."""
        file = self.site / "demo_attn/__init__.py"
        built = file.read_text().split("'")[1] if file.is_file() else ""
        (torch,) = self.site.glob("torch-*.dist-info")
        torches = torch.name == f"torch-{TORCH}.dist-info" and (torch / "untouched").exists()
        return built, len([*self.site.glob("demo_attn-*.dist-info")]), torches


@pytest.fixture
def environment(tmp_path: Path, places: Places) -> Environment:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    (tmp_path / "bin/nvidia-smi").write_text(SMI)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    places.built.unlink(missing_ok=True)
    return Environment(tmp_path, places)


def in_bash(form: str, text: str) -> str:
    """What a shell makes of a text, for bash; tests/sandbox and tests/powershell ask the shells."""
    if (
        form == ".bat"
    ):  # https://learn.microsoft.com/windows-server/administration/windows-commands/call
        return re.sub(r"%(%|\d)", lambda found: "%" if found[1] == "%" else "", text)
    if form == "PowerShell":
        return re.sub(r"; if \(\$\?\) \{ (.*) \}$", r" && \1", text)
    return text


def command(form: str, situation: str, environment: Environment) -> str:
    """What is pasted there."""
    places = environment.places
    base = places.swapped if situation == "swapped" else places.ours
    torch = "2.8.1+cu128" if situation == "torch not to be had" else TORCH
    if form.startswith(WHICH):
        text = environment.printed()["uv" if "uv" in form else "bash"]
        return text.replace(places.ours, base)  # what was swapped since
    if form in PAGE:
        return in_bash(form, filled(form, base, places.link, torch))
    return documented(form, base, "demo-attn", WANTED, torch)


def documented(form: str, base: str, project: str, version: str, torch: str) -> str:
    """As docs/publish.md has it."""
    if form == VARIANTS:
        start = ["uv", "pip", "install", "--preview-features", "wheel-variants"]
        return format_for_shell([uv_installs(start, f"{base}/simple/", project, torch)], "bash")
    index = ["--extra-index-url", f"{base}/plain/", "--only-binary", project]
    return format_for_shell(
        pip_installs("python", [*index, f"{project}=={version}"], torch), "bash"
    )


@pytest.mark.parametrize(("form", "client", "situation"), [*cases()])
def test_a_printed_command_installs_that_wheel_or_refuses(
    environment: Environment, pythons: Path, form: str, client: str, situation: str
) -> None:
    made = python_with(pythons, client)
    shutil.copytree(made, environment.room / ".venv", symlinks=True)
    environment.has(situation)
    before = environment.state
    done = environment.paste(command(form, situation, environment))
    built, many, torch = environment.state
    assert not environment.places.built.exists(), "the source distribution was built"
    assert torch, done.stderr
    outcome = outcome_of(form, client, situation)
    if outcome == "refused":
        assert done.returncode != 0, done.stdout
        assert environment.state == before
        return
    assert done.returncode == 0, done.stderr
    assert (built, (environment.site / "einops").is_dir()) == (WANTED, True), done.stdout
    assert many == (2 if "two" in outcome else 1)


@pytest.mark.slow
def test_each_shell_gets_the_same_words_and_stops_after_a_failure(tmp_path: Path) -> None:
    noting_pip(tmp_path)
    base, link = URL.split("/files/")
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    both = [words[3:] for words in pip_installs("", [URL], TORCH)]
    for wanted in (both, both[:1]):  # the second time the first command fails
        for form in FORMS:
            (tmp_path / "noted").unlink(missing_ok=True)
            text = in_bash(form, filled(form, base, f"files/{link}", start=sys.executable))
            done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=own, check=False)
            found = (tmp_path / "noted").read_text().splitlines()
            assert [json.loads(line) for line in found] == wanted, form
            assert (done.returncode != 0) == (len(wanted) == 1), form
        (tmp_path / "fail").touch()


def test_documents_have_the_commands_that_are_made() -> None:
    base = "https://wheels.example.org"
    link = (
        "files/60/609a.../flash_attn-2.8.3%2Bcu128torch2.8-cp312-cp312-win_amd64.whl#sha256=609a..."
    )
    text = (DOCS / "publish.md").read_text("utf-8")
    for form in (VARIANTS, INDEX):
        assert documented(form, base, "flash-attn", WANTED, TORCH) in text
    for form in ("PowerShell", UV_PROJECT):
        assert filled(form, base, link).replace("demo-attn", "flash-attn") in text


def test_the_table_has_every_form_client_and_situation() -> None:
    """docs/evidence/install-commands.md is this file's constants, and no other result."""
    text = (DOCS / "evidence/install-commands.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head, *rows = rows
    assert head == ["form", "client", *SITUATIONS]
    clients = {FORMS_OF_PIP: [f"pip {one}" for one in PIPS], FORMS_OF_UV: ["uv"]}
    wanted = [
        [form, client, *(outcome_of(form, client, one) for one in SITUATIONS)]
        for forms, own in clients.items()
        for form in forms
        for client in own
    ]
    assert rows == wanted
