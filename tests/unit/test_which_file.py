"""``which.py`` as people have it: one file, run by Pythons of others; ``invoke which`` runs it."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shlex
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest
from environments import RTX_4090, Windows, module
from foreign_wheels import foreign
from indexes import finished, offers_of, served
from test_which_choice import HASH, catalogue, wheel
from tls_keys import Authority

from pipelines.cli.program import run_command_line
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.which import children, joining, trying
from pipelines.publish.which.answer import as_object, as_text
from pipelines.publish.which.children import run_child
from pipelines.publish.which.joining import build_which_script
from pipelines.publish.which.listed import fetch_rows, place_of, read_catalogue_rows
from pipelines.publish.which.looking import Driver, this_place
from pipelines.publish.which.reporting import Report, build_report

pytestmark = pytest.mark.slow


#: Of all releases that it is for, those that are here.
PYTHONS = [
    str(path)
    for minor in range(9, 15)
    for path in [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")][:1]
] or [sys.executable]
SMI = """#!/bin/sh
case "$1" in
--query*) echo "8.9, NVIDIA GeForce RTX 4090" ;;
*) echo "| NVIDIA-SMI 575.57   Driver Version: 576.57   CUDA Version: 12.9 |" ;;
esac
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("file") / "which.py"
    made.write_bytes(build_which_script())
    return made


def test_it_is_one_file_for_python_3_9(file: Path) -> None:
    text = file.read_text("utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {*sys.stdlib_module_names}
    assert "pipelines" not in imported
    assert text.startswith('"""Find the wheel that fits this Python')
    joining.build_which_script.cache_clear()
    assert build_which_script() == file.read_bytes()
    own = joining._ROOT.parent / joining.WHICH
    assert own.read_bytes() == build_which_script(), (
        "run: python -m pipelines.publish.which.joining"
    )


def test_a_name_of_two_modules_is_refused() -> None:
    with pytest.raises(ValueError, match=r"_LONGEST is in two modules of which\.py"):
        joining._require_once("_LONGEST = 1\ndef one(): ...\n_LONGEST: int = 2\n")


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parents[1].name)
def test_it_runs_alone(file: Path, python: str) -> None:
    """Without site-packages and in isolation, on each Python that is here."""
    for flags in (["-I", "-S"], []):
        done = subprocess.run(
            [python, *flags, str(file), "--json"], capture_output=True, text=True, check=False
        )
        document = json.loads(done.stdout)
        assert (done.returncode, done.stderr) == (9, "")
        assert document["machine"]["line"].startswith("wcw1:platform=linux_x86_64&python=3.")


def test_a_module_of_pythons_own_name_beside_it_is_not_taken(file: Path, tmp_path: Path) -> None:
    (tmp_path / "which.py").write_bytes(file.read_bytes())
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "which.py"), "--share"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Linux:
    """A Linux Python with a torch in a folder, a pip that only records its arguments, a driver."""

    def __init__(self, room: Path) -> None:
        self.site, self.index = room / "site", room / "index"
        self.noted = room / "noted"
        about = "Metadata-Version: 2.4\nName: torch\nVersion: 2.8.0+cu128\n"
        self.write(
            {
                "site/torch/__init__.py": "",
                "site/torch/version.py": "__version__ = '2.8.0+cu128'\ncuda = '12.8'\n",
                "site/torch-2.8.0+cu128.dist-info/METADATA": about,
                "site/pip/__init__.py": "",
                "site/pip/__main__.py": f"import sys\nopen({str(self.noted)!r}, 'w')"
                f".write(chr(10).join(sys.argv[1:]))\n",
                "bin/nvidia-smi": SMI,
            },
            room,
        )
        (room / "bin/nvidia-smi").chmod(0o755)
        self.index.mkdir()
        tag = f"cp3{sys.version_info[1]}"
        (self.index / "catalogue.json").write_bytes(
            catalogue(wheel(tag=f"{tag}-{tag}-linux_x86_64"))
        )
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(self.site),
            "PATH": f"{room / 'bin'}:{os.environ['PATH']}",
        }

    @staticmethod
    def write(files: Mapping[str, str], room: Path) -> None:
        for path, text in files.items():
            (room / path).parent.mkdir(parents=True, exist_ok=True)
            (room / path).write_text(text)

    def which(self, file: Path, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, str(file), "--index", str(self.index), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment
        )
        return done.returncode, done.stdout, done.stderr


def test_it_prints_the_command_and_runs_nothing(file: Path, tmp_path: Path) -> None:
    linux = Linux(tmp_path)
    code, said, _ = linux.which(file)
    assert (code, linux.noted.exists()) == (0, False)
    (line,) = (line for line in said.splitlines() if "-m pip install" in line)
    program, *words = shlex.split(line)
    assert (program, words[:3]) == (sys.executable, ["-m", "pip", "install"])
    assert words[3].startswith(f"{linux.index.as_uri()}/files/ab/{HASH}/flash_attn-2.8.3%2Bcu128")
    assert words[3].endswith(f"#sha256={HASH}")
    assert words[4:] == ["torch==2.8.0+cu128"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the genuine pip, and a torch that it has installed."""
    room = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(room / "venv")], check=True)
    version = b"__version__ = '2.8.0+cu128'\ncuda = '12.8'\n"
    files = {"torch/__init__.py": b"", "torch/version.py": version}
    own = foreign(room, "torch", "2.8.0+cu128", files=files)
    command = [str(room / "venv/bin/python"), "-m", "pip", "--isolated", "install", "--no-index"]
    subprocess.run([*command, str(own)], check=True, capture_output=True)
    return room


@pytest.mark.parametrize(
    "case",
    [
        ("2.8.3", "torch==2.8.*", ""),
        ("2.8.4", "torch==2.9.*", "conflict"),  # its catalogue says 2.8
        ("2.8.5", "nothing-of-that-name", "No matching distribution found"),
        ("2.8.6", "torch", "DO NOT MATCH THE HASHES"),
    ],
)
def test_the_genuine_pip_installs_it_and_keeps_torch(
    file: Path, environment: Path, tmp_path: Path, case: tuple[str, str, str]
) -> None:
    version, requires, why = case
    linux = Linux(tmp_path)
    tag = f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_x86_64"
    local = "cu128torch2.8"
    made = foreign(tmp_path, "flash_attn", f"{version}+{local}", tag, requires=(requires,))
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    url = f"files/{sha256[:2]}/{sha256}/{made.name}"
    (linux.index / url).parent.mkdir(parents=True)
    made.rename(linux.index / url)
    if "HASHES" in why:  # swapped on the server
        with (linux.index / url).open("ab") as stream:
            stream.write(b"x")
    row = {**wheel(local, tag, version=version), "sha256": sha256, "url": url}
    (linux.index / "catalogue.json").write_bytes(catalogue(row))
    command = [str(environment / "venv/bin/python"), str(file), "--index", str(linux.index)]
    kept = {k: v for k, v in linux.environment.items() if k != "PYTHONPATH"}
    kept |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, check=False, env=kept)

    (line,) = (line for line in run(*command).stdout.splitlines() if "-m pip install" in line)
    done = run(*shlex.split(line))
    (torch,) = (environment / "venv/lib").glob("python3*/site-packages/torch-*")
    assert torch.name == "torch-2.8.0+cu128.dist-info"
    if why:
        assert done.returncode == 1
        assert why in done.stderr
        return
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(run(*command, "--json").stdout)["packages"]
    assert (found["version"], found["loads"]) == (f"{version}+{local}", True)


def test_where_nothing_fits_there_is_no_command(file: Path, tmp_path: Path) -> None:
    linux = Linux(tmp_path)
    (linux.index / "catalogue.json").write_bytes(catalogue(wheel()))
    code, said, _ = linux.which(file)
    assert (code, "pip install" in said) == (9, False)
    assert "it is for win_amd64, but this Python is for linux_x86_64" in said


def test_a_torch_that_pip_does_not_know_is_not_replaced(file: Path, tmp_path: Path) -> None:
    linux = Linux(tmp_path)
    (linux.site / "torch-2.8.0+cu128.dist-info/METADATA").unlink()
    (linux.site / "torch-2.8.0+cu128.dist-info").rmdir()
    assert "pip install" not in linux.which(file)[1]


def test_a_torch_whose_version_is_none_gets_no_command(file: Path, tmp_path: Path) -> None:
    linux = Linux(tmp_path)
    (linux.site / "torch-2.8.0+cu128.dist-info/METADATA").write_text(
        'Metadata-Version: 2.4\nName: torch\nVersion: 2.8.0"&calc&"\n'
    )
    said = linux.which(file)[1]
    assert "no command is given" in said
    assert "pip install" not in said


def test_what_is_shared_has_no_names_and_no_paths(file: Path, tmp_path: Path) -> None:
    code, said, _ = Linux(tmp_path).which(file, "--share")
    assert (code, said.splitlines()) == (
        0,
        [f"wcw1:platform=linux_x86_64&python=3.{sys.version_info[1]}&torch=2.8.0%2Bcu128&cuda=12.8"
         "&driver=12.9&gpu=8.9"],
    )  # fmt: skip


def test_an_import_that_fails_hangs_or_floods_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_with(text: str, seconds: float = 20) -> children.Ended:
        return run_child([sys.executable, "-c", text], seconds)

    assert ended_with("print('wcw1 {\"a\": 1}')").result == {"a": 1}
    assert ended_with("print('wcw1 [')").result == {}
    ended = ended_with("import time; time.sleep(60)", 0.5)
    assert (ended.code, ended.why) == (None, "it was killed after 0 s")
    monkeypatch.setattr(children, "_MOST_OUTPUT", 1 << 20)
    ended = ended_with("while True: print('x' * 10000)")
    assert (ended.code, ended.why) == (None, "it printed more than 1 MiB")
    assert len(ended.output) <= 1 << 16
    assert ended_with("import os; os.abort()").code == -6
    assert "cannot be started" in run_child([str(tmp_path / "none")], 1).why


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Report]:
    """What is said of a package of this Python, whose import does what its text says."""
    site, cwd = tmp_path / "site", tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(cwd)

    def look(text: str, name: str = "tried") -> Report:
        about = f"{name}-1.0.dist-info"
        files = {f"{name}/__init__.py": text, f"{about}/METADATA": f"Name: {name}\nVersion: 1.0\n"}
        Linux.write({**files, f"{about}/RECORD": f"{name}/__init__.py,,{len(text)}\n"}, site)
        return build_report(this_place(), [], "tried", driver=Driver("12.9", ("8.9",)))

    return look


def test_a_package_is_imported_in_another_process(tried: Callable[[str], Report]) -> None:
    (found,) = tried("import sys").packages
    ids = [one.id for one in found.findings]
    assert (found.loads, found.errors, ids) == (True, (), ["no-binary"])
    (found,) = tried("raise OSError('WinError 126')").packages
    assert (found.loads, found.errors) == (False, ("tried: OSError: WinError 126",))
    (found,) = tried("import einopsx").packages
    assert [one.id for one in found.findings] == ["missing-requirement", "no-binary"]
    (found,) = tried("import os; os.abort()").packages
    assert found.errors[0].startswith("its process exited with -6")
    (found,) = tried("import os; print('wcw1 {\"errors\": {}}'); os._exit(1)").packages
    assert found.loads is False


def test_modules_that_fail_beside_an_import_that_works(
    tried: Callable[[str], Report], tmp_path: Path
) -> None:
    """Such as those for a library that is not there, which a package does not need."""
    name = f"tried/_C{EXTENSION_SUFFIXES[0]}"
    tried("")
    Linux.write({name: "PyInit__C"}, tmp_path / "site")
    record = tmp_path / "site/tried-1.0.dist-info/RECORD"
    record.write_text(f"{record.read_text()}{name},,9\n")
    found = build_report(this_place(), [], "tried", driver=Driver("12.9", ("8.9",)))
    (package,) = found.packages
    assert (package.loads, package.partly) == (False, True)
    assert package.errors[0].startswith("tried._C: ImportError")
    assert "tried 1.0 can be imported, but NOT ALL OF IT LOADS" in as_text(found, "")


def test_what_hangs_is_ended(
    tried: Callable[[str], Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "_LOAD_SECONDS", 1.0)
    (found,) = tried("import time; time.sleep(60)").packages
    assert (found.loads, found.errors) == (False, ("it was killed after 1 s",))


def test_what_is_imported_in_its_place_does_not_count(
    tried: Callable[[str], Report], tmp_path: Path
) -> None:
    Linux.write({"cwd/tried/__init__.py": ""}, tmp_path)
    found = tried("raise OSError('never seen')")
    assert [one.id for one in found.packages[0].findings] == ["shadowed", "no-binary"]
    assert found.packages[0].loads is False
    assert not found.good


def test_a_torch_that_fails_is_looked_at_itself(
    tried: Callable[..., Report], tmp_path: Path
) -> None:
    Linux.write({"site/torch/version.py": "__version__ = '2.8.0'\ncuda = '12.8'\n"}, tmp_path)
    tried("raise OSError('WinError 127')", "torch")
    found = tried("import torch")
    assert [one.installed.project for one in found.packages] == ["tried", "torch"]
    assert found.packages[1].errors == ("torch: OSError: WinError 127",)


def test_the_answer_fits_a_terminal(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash(module(archs="90"), version="2.8.3+cu128torch2.9")
    rows = read_catalogue_rows(catalogue(wheel("b")))
    found = build_report(windows.place(), rows, driver=RTX_4090, load=False)
    text = as_text(found, "https://wheels.example.org/")
    assert text.isascii()
    long = [row for row in text.splitlines() if len(row) > 100 and "pip install" not in row]
    assert [row for row in long if str(tmp_path) not in row] == []
    assert "flash-attn 2.8.3+cu128torch2.9 is installed\n" in text
    assert "! it has code for 90, but the GPU has compute capability 8.9" in text
    assert "flash-attn: this wheel fits (machine code; tested on RTX 4090)" in text
    document = as_object(found, "https://wheels.example.org/")
    assert document["wheels"]["flash-attn"]["command"][-2:] == [
        f"https://wheels.example.org/files/ab/{HASH}/{wheel('b')['file'].replace('+', '%2B')}"
        f"#sha256={HASH}",
        "torch==2.8.0+cu128",
    ]


def test_the_release_that_is_there_is_forced_and_torch_left_alone(tmp_path: Path) -> None:
    """pip installs nothing where it finds the release, and with a force all that is named."""
    windows = Windows(tmp_path)
    windows.flash().write_bytes(b"MZ")
    rows = read_catalogue_rows(catalogue(wheel()))
    found = build_report(windows.place(), rows, driver=RTX_4090, load=False)
    command = as_object(found, "https://x.org/")["wheels"]["flash-attn"]["command"]
    assert command[4:6] == ["--force-reinstall", "--no-deps"]
    assert len(command) == 7
    assert "It is already installed" not in as_text(found, "https://x.org/")
    package = replace(found.packages[0], loads=True, findings=())
    text = as_text(replace(found, packages=(package,)), "https://x.org/")
    assert "It is already installed and loads: nothing to do." in text
    assert "pip install" not in text


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("published")
    run = finished(room / "out")
    publish_wheels(
        Store(str(room / "index")), Order(offers_of([run], untested=False)), say=lambda _: None
    )
    return room / "index"


def test_the_index_serves_the_file(published: Path) -> None:
    """It knows its origin: next to its catalogue, and where its text was fetched."""
    there = published / "which.py"
    assert there.read_bytes() == build_which_script()
    done = run_child([sys.executable, str(there)], 60)
    assert "demo-attn: no wheel of the index fits. The nearest one:" in done.output
    with served(published) as address:
        line = (
            f"import urllib.request as u; a = '{address}/which.py';"
            "r = u.Request(a, headers={'User-Agent': 'which.py'});"
            "exec(compile(u.urlopen(r).read(), a, 'exec'))"
        )
        done = run_child([sys.executable, "-c", line], 60)
        assert "demo-attn: no wheel of the index fits" in done.output
        assert done.code == 9


def of_a_server(
    published: Path, room: Path, python: str, *words: str, identified: bool, trusted: bool
) -> subprocess.CompletedProcess[str]:
    """What which.py says of an index behind TLS."""
    authority = Authority(identified=identified)
    keys = authority.issue(room / "keys", address="127.0.0.1")
    Authority().issue(room / "others", address="127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    with served(published, context) as address:
        known = (keys if trusted else room / "others") / "ca.pem"
        return subprocess.run(
            [python, str(published / "which.py"), "--json", "--index", address, *words],
            env=os.environ | {"SSL_CERT_FILE": str(known)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parents[1].name)
def test_a_certificate_that_python_3_13_alone_refuses(
    published: Path, tmp_path: Path, python: str, identified: bool
) -> None:
    """Without an authority key identifier; pip takes it, as curl and Windows do."""
    done = of_a_server(published, tmp_path, python, identified=identified, trusted=True)
    assert (done.returncode, done.stderr) == (9, "")
    assert json.loads(done.stdout)["wheels"]["demo-attn"]["nearest"]


@pytest.mark.parametrize("python", PYTHONS[-1:])
def test_an_authority_that_is_not_known_is_refused_and_a_saved_catalogue_will_do(
    published: Path, tmp_path: Path, python: str
) -> None:
    done = of_a_server(published, tmp_path / "a", python, identified=True, trusted=False)
    assert done.returncode == 2
    assert "--catalogue catalogue.json" in done.stderr
    words = ("--catalogue", str(published / "catalogue.json"))
    done = of_a_server(published, tmp_path / "b", python, *words, identified=True, trusted=False)
    assert (done.returncode, done.stderr) == (9, "")
    rows, base = fetch_rows("https://x.org/sub/index.html", str(published / "catalogue.json"))
    assert place_of(rows[0], base).startswith("https://x.org/sub/files/")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run_command_line(["which", *words])
    captured: Any = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "--index", str(published), "--json")
    assert code == 9
    assert json.loads(out)["wheels"]["demo-attn"]["nearest"].startswith("demo_attn-2.8.3")
    assert answer(capsys, "--share")[1].startswith("wcw1:platform=")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_cannot_be_read_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    """Not as a fault of the Python, which has answered."""
    code, out, err = answer(capsys, "--index", str(tmp_path), *words)
    assert (code, out) == (2, "")
    assert str(tmp_path) in err
    assert "--python" not in err


@pytest.mark.parametrize("program", ["/bin/true", "/bin/echo", "/nowhere/python"])
def test_what_is_no_python_gives_no_answer(
    capsys: pytest.CaptureFixture[str], program: str
) -> None:
    code, out, err = answer(capsys, "--python", program, "--json")
    assert (code, out) == (2, "")
    assert "gave no answer" in err
