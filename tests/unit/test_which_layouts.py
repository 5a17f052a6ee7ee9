"""``which`` on Pythons as others have laid them out, with drivers and local versions of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from environments import IMPORTS, RTX_4090, Windows, module
from test_which_causes import causes, seen
from test_which_choice import answering, catalogue, sends, wheel
from test_which_file import Linux, file

from pipelines.publish.which import looking, main
from pipelines.publish.which.answer import as_object, as_text, format_for_shell, uv_installs
from pipelines.publish.which.causes import built_for
from pipelines.publish.which.listed import fetch_rows, read_catalogue_rows
from pipelines.publish.which.looking import Installed, Place, ask_driver, this_place
from pipelines.publish.which.reporting import Report, build_report
from pipelines.publish.which.texts import RefusalError
from pipelines.publish.which.trying import missing_module

assert file  # a fixture
ABOUT = "Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n"


@pytest.mark.parametrize(
    ("local", "torch", "cuda"),
    [
        ("cu128torch2.8", "2.8", "12.8"),
        ("cu130torch2.10", "2.10", "13.0"),
        ("cu128torch2.10.0", "2.10", "12.8"),
        ("cu128.torch2.8.stable", "2.8", "12.8"),
        ("cu12torch2.8cxx11abiTRUE", "2.8", "12"),
        ("cu128torch2.8.0cxx11abiFALSE", "2.8", "12.8"),
        ("cu128torch2.8.0.post3", "2.8", "12.8"),
        ("pt2.8.0cu128", "2.8", "12.8"),
        ("pt28cu129", "2.8", "12.9"),
        ("cu128torch28", "2.8", "12.8"),
        ("cu13.0torch2.9", "2.9", "13.0"),
        ("cu12.20250101", "", "12"),
        ("torch210", "", ""),  # 2.10, or 2.1.0
        ("torch251cu124", "", "12.4"),
        ("torch2100", "", ""),
        ("opt27", "", ""),
        ("cu1210", "", ""),
        ("cu1302", "", ""),
        ("cu92", "", ""),
        ("d20250101", "", ""),
        ("fc8d3c5.d20240812", "", ""),
    ],
)
def test_local_versions_of_others(local: str, torch: str, cuda: str) -> None:
    """What can be read in two ways is not read: a wrong cause would look right."""
    built = built_for(Installed("x", f"1.0+{local}", "", ""))
    assert (built.torch, built.cuda) == (torch, cuda)


@pytest.mark.parametrize(
    ("required", "torch"),
    [
        ("torch==2.7.*", "2.7"),
        ("torch (==2.6.0)", "2.6"),
        ("torch==2.7.*; extra == 'test'", ""),
        ('torch==2.4.0 ; python_version < "3.9"', ""),
        ("torch>=2.7", ""),
        ("torch==2.7.*,!=2.7.1", ""),
        ("torchvision==0.20", ""),
    ],
)
def test_what_is_required_elsewhere_says_nothing(required: str, torch: str) -> None:
    assert built_for(Installed("x", "1.0", "", "", (required,))).torch == torch


def test_a_cuda_of_which_the_major_is_said(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "12")
    windows.flash(version="2.8.3+cu12torch2.8")
    assert causes(seen(windows)) == []
    windows = Windows(tmp_path / "13")
    windows.flash(version="2.8.3+cu13torch2.8")
    (own,) = causes(seen(windows))
    assert own.actual.endswith("was built with CUDA 13, but torch with CUDA 12.8")


def test_pypis_torch_is_whole(tmp_path: Path) -> None:
    """Its wheel is called 2.8.0, and its files say 2.8.0+cpu or +cu128."""
    windows = Windows(tmp_path)
    (about,) = windows.site.glob("torch-*/METADATA")
    about.write_text("Metadata-Version: 2.4\nName: torch\nVersion: 2.8.0\n")
    found = seen(windows)
    assert causes(found) == []
    about.write_text("Metadata-Version: 2.4\nName: torch\nVersion: 2.8.0+cu126\n")
    assert [one.id for one in causes(seen(windows))] == ["torn-torch"]


def test_of_a_torn_torch_no_command_is_given(tmp_path: Path) -> None:
    """pip would take it for the one that its metadata tells of, and the wheel is for the other."""
    windows = Windows(tmp_path)
    (about,) = windows.site.glob("torch-*/METADATA")
    about.write_text("Metadata-Version: 2.4\nName: torch\nVersion: 2.9.0+cu128\n")
    rows = read_catalogue_rows(catalogue(wheel()))
    found = build_report(windows.place(), rows, driver=RTX_4090, load=False)
    assert "pip sees torch 2.9.0+cu128" in as_text(found, "https://x.org/")
    assert as_object(found, "https://x.org/")["wheels"]["flash-attn"]["command"] is None


@pytest.mark.parametrize(
    ("names", "version", "kinds"),
    [
        (["aoti_torch_empty"], "2.7", []),
        (["aoti_torch_empty"], "2.9", ["torch-mismatch"]),
        (["aoti_torch_empty", "?make@at@@YAXXZ"], "2.7", ["torch-mismatch"]),
    ],
)
def test_on_the_stable_abi_a_later_torch_is_none_too_many(
    tmp_path: Path, names: list[str], version: str, kinds: list[str]
) -> None:
    windows = Windows(tmp_path)
    binary = module({**IMPORTS, "torch_cpu.dll": names})
    windows.flash(binary, version=f"2.8.3+cu128torch{version}")
    assert [one.id for one in causes(seen(windows))] == kinds


@pytest.mark.parametrize(("runtime", "kinds"), [([], []), (["cudart64_12.dll"], ["cuda-mismatch"])])
def test_with_cuda_inside_that_of_torch_is_none_of_its_own(
    tmp_path: Path, runtime: list[str], kinds: list[str]
) -> None:
    windows = Windows(tmp_path)
    wanted = {name: IMPORTS[name] for name in ("python312.dll", "KERNEL32.dll", *runtime)}
    binary = module({**wanted, "torch_cpu.dll": ["aoti_torch_empty"]})
    windows.flash(binary, version="2.8.3+cu130torch2.7")
    found = [*{one.id for one in causes(seen(windows))} & {"cuda-mismatch"}]
    assert found == kinds


def test_free_threaded_is_another_python(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash(suffix=".cp312t-win_amd64.pyd")
    assert "is for Python 3.12t, but this" in " ".join(one.actual for one in causes(seen(windows)))
    windows = Windows(tmp_path / "inside")
    wanted = {name: names for name, names in IMPORTS.items() if name != "python312.dll"}
    windows.flash(module({**wanted, "python312t.dll": ["X"]}), suffix=".pyd")
    assert "python-mismatch" in [one.id for one in causes(seen(windows))]


def test_metadata_with_windows_line_ends(tmp_path: Path) -> None:
    """What its description says is not what it requires."""
    windows = Windows(tmp_path)
    windows.flash(version="2.8.3")
    (about,) = windows.site.glob("flash_attn-*/METADATA")
    text = about.read_text() + "\nold notes:\nRequires-Dist: torch==2.1.*\n"
    about.write_bytes(text.replace("\n", "\r\n").encode())
    assert [one.id for one in causes(seen(windows)) if one.failed] == []


def laid_out(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> Report:
    """What is said of flash-attn in these folders."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    for one in reversed(folders):
        monkeypatch.syspath_prepend(str(one))
    return build_report(this_place(), [], "flash-attn", driver=RTX_4090)


@pytest.mark.parametrize(
    "record",
    [
        "__editable__.flash_attn-2.8.3.pth,,9\nflash_attn-2.8.3.dist-info/METADATA,,\n",
        "flash_attn.pth,,9\nflash_attn-2.8.3.dist-info/direct_url.json,,\n",
    ],
    ids=["setuptools", "others"],
)
def test_a_link_to_sources_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    about = "site/flash_attn-2.8.3.dist-info"
    files = {"src/flash_attn/__init__.py": "", f"{about}/METADATA": ABOUT}
    says = json.dumps({"dir_info": {"editable": True}, "url": "file:///src"})
    Linux.write({**files, f"{about}/RECORD": record, f"{about}/direct_url.json": says}, tmp_path)
    (found,) = laid_out(monkeypatch, tmp_path / "site", tmp_path / "src").packages
    assert found.loads
    assert [one.id for one in found.findings] == ["not-checked"]


@pytest.mark.parametrize(
    ("files", "folder"),
    [
        ({"site/flash_attn-2.8.3-py3.11.egg-info/PKG-INFO": ABOUT}, "site"),
        ({"site/flash_attn-2.8.3-py3.11.egg-info": ABOUT}, "site"),
        ({"site/flash_attn.egg-info/PKG-INFO": ABOUT}, "site"),
        (
            {"flash_attn-2.8.3-py3.11-win-amd64.egg/EGG-INFO/PKG-INFO": ABOUT},
            "flash_attn-2.8.3-py3.11-win-amd64.egg",
        ),
    ],
    ids=["folder", "file", "develop", "egg"],
)
def test_what_came_before_dist_info_is_installed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str], folder: str
) -> None:
    """conda's torch and ``setup.py install`` have it; their installation was not interrupted."""
    Linux.write({f"{folder}/flash_attn/__init__.py": "", **files}, tmp_path)
    found = laid_out(monkeypatch, tmp_path / folder)
    (own,) = found.packages
    assert (own.installed.version, own.loads, found.strays) == ("2.8.3", True, ())
    assert [(one.id, one.failed) for one in own.findings] == [("not-checked", False)]


def test_one_folder_by_two_names_is_one_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Linux.write(
        {
            "lib/flash_attn/__init__.py": "",
            "lib/flash_attn-2.8.3.dist-info/METADATA": ABOUT,
            "lib/flash_attn-2.8.3.dist-info/RECORD": "flash_attn/__init__.py,,0\n",
        },
        tmp_path,
    )
    (tmp_path / "lib64").symlink_to("lib")
    (found,) = laid_out(monkeypatch, tmp_path / "lib64", tmp_path / "lib").packages
    assert (found.loads, [one.id for one in found.findings]) == (True, ["no-binary"])


def test_the_first_of_several_names_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (tmp_path / "link").symlink_to("first")
    monkeypatch.setattr(sys, "path", [str(first), str(second), str(tmp_path / "link")])
    assert this_place().paths[-2:] == (str(first), str(second))


def test_a_pipe_is_no_record(tmp_path: Path) -> None:
    """Nothing is ever written into it."""
    os.mkfifo(tmp_path / "RECORD")
    assert looking.read_text(tmp_path / "RECORD") is None


def test_folders_of_one_name_without_init_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes all of them together."""
    Linux.write(
        {
            "first/flash_attn/other.py": "",
            "site/flash_attn/one.py": "",
            "site/flash_attn-2.8.3.dist-info/METADATA": ABOUT,
            "site/flash_attn-2.8.3.dist-info/RECORD": "flash_attn/one.py,,0\n",
        },
        tmp_path,
    )
    (found,) = laid_out(monkeypatch, tmp_path / "first", tmp_path / "site").packages
    assert [one.id for one in found.findings] == ["no-binary"]


@pytest.mark.slow
def test_a_package_among_very_many_is_found(tmp_path: Path) -> None:
    for number in range(50_001):
        (tmp_path / f"a{number}").touch()
    assert len(looking.names_in(str(tmp_path))) == 50_001


def test_more_files_than_are_looked_at_are_told(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash()
    (record,) = windows.site.glob("flash_attn-*/RECORD")
    record.write_text("flash_attn/__init__.py,,13\n" * 20_001)
    assert "20001 files: not all" in " ".join(one.actual for one in causes(seen(windows)))


def test_a_part_that_was_not_built_is_not_looked_for_at_pypi() -> None:
    package = Installed("flash-attn", "2.8.3", "", "", files=(("flash_attn/__init__.py", 0),))
    error = "ModuleNotFoundError: No module named 'flash_attn_2_cuda'"
    place = this_place()
    (cause,) = missing_module(place, package, error)
    assert cause.id == "half-installed"
    assert "flash_attn_2_cuda with pip" not in cause.hint
    (cause,) = missing_module(place, package, "ModuleNotFoundError: No module named 'einops'")
    assert cause.hint.startswith("install einops with pip")


def alone(file: Path, *words: str, cwd: Path, before: str = "") -> tuple[int, str, str]:
    """The file in a folder, perhaps after a line of shell."""
    command = ["sh", "-c", f'{before}exec "$@"', "sh", sys.executable, str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_a_folder_that_is_gone_and_modules_beside(file: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    assert alone(file, "--share", cwd=gone, before="rmdir ../gone; ")[::2] == (0, "")
    about = "flash_attn-2.8.3.dist-info"
    Linux.write({"json.py": "raise SystemExit('mine')", "flash_attn/__init__.py": ""}, tmp_path)
    rows = "flash_attn/__init__.py,,0\n"
    Linux.write({f"{about}/METADATA": ABOUT, f"{about}/RECORD": rows}, tmp_path)
    _, said, _ = alone(file, "--json", cwd=tmp_path)
    assert json.loads(said)["packages"][0]["errors"] == []


def test_an_older_python_is_told_so(file: Path) -> None:
    older = f"import sys; sys.version_info = (3, 8, 18); exec(open({str(file)!r}).read())"
    done = subprocess.run([sys.executable, "-c", older], capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "which.py needs Python 3.9 or later, but this is 3.8\n",
    )


def test_who_runs_it_reads_utf_8(file: Path, tmp_path: Path) -> None:
    """A path in the command that is given; a Windows of western Europe writes cp1252."""
    room = tmp_path / "Jörg"
    room.mkdir()
    python = room / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    code = f"import sys; sys.executable = {str(python)!r}; sys.argv = ['which.py', *sys.argv[1:]];"
    code += f"exec(compile(open({str(file)!r}).read(), 'which.py', 'exec'))"
    (tmp_path / "catalogue.json").write_bytes(
        catalogue(wheel(tag="py3-none-any", torch="", cuda="", sass=[]))
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--index", str(tmp_path), "--mark", "Jörg"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.stdout.decode("utf-8").splitlines()[-1] == "Jörg", done.stderr


@pytest.mark.parametrize(
    ("program", "form", "said"),
    [
        ("/usr/bin/python3", "bash", "/usr/bin/python3 -m pip"),
        ("C:\\R&D\\python.exe", "bash", "'C:/R&D/python.exe' -m pip"),
        ("/home/$(id)/python", "bash", "'/home/$(id)/python' -m pip"),
        ("/my python", "bash", "'/my python' -m pip"),
        ("C:\\R&D\\python.exe", "cmd", '"C:\\R&D\\python.exe" -m pip'),
        ("C:\\R&D\\100%2\\python.exe", ".bat", '"C:\\R&D\\100%%2\\python.exe" -m pip'),
        ("C:\\$(id)'s\\python.exe", "PowerShell", "& 'C:\\$(id)''s\\python.exe' -m pip"),
    ],
)
def test_a_terminal_sees_a_path_and_no_more(program: str, form: str, said: str) -> None:
    assert format_for_shell([[program, "-m", "pip"]], form) == said


def test_a_path_that_uv_is_given_is_no_command(tmp_path: Path) -> None:
    start = ["uv", "pip", "install", "--python", f"/home/$(touch {tmp_path}/x)`id`/python"]
    text = format_for_shell([uv_installs(start, "https://x.org/plain/", "demo==1", "")], "bash")
    (tmp_path / "uv").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "uv").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", text], env=path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[3] == start[4]
    assert not (tmp_path / "x").exists()


def answered(monkeypatch: pytest.MonkeyPatch, data: object, smi: str = "", system: str = "") -> str:
    """The driver, as one word a thing, where its library says so and ``nvidia-smi`` is a script."""
    monkeypatch.setattr(looking, "PROBE", f"print('wcw1 ' + {json.dumps(data)!r})")
    if smi:
        path = Path(system) / "nvidia-smi.exe"
        path.write_text(f"#!/bin/sh\n{smi}")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    found = ask_driver(Place(sys.executable, "3.12", "win_amd64", (), (), system=system))
    return f"{found.release} {','.join(found.gpus)} {found.trouble}".strip()


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (["8.9", "12.0"], "12.9 8.9,12.0"),
        (["8.9", "error 3"], "12.9  not every GPU was identified, of 2: ['error 3']"),
        (["8.9", "0.0"], "12.9  not every GPU was identified, of 2: ['0.0']"),
        (["8.9"] * 65, "12.9  not every GPU was identified, of 65: ['8.9']"),
    ],
)
def test_gpus_of_which_one_is_not_known(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], said: str
) -> None:
    """A wheel for the others alone must not be said to fit."""
    assert answered(monkeypatch, {"driver": "12.9", "gpus": gpus, "names": []}) == said


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("echo '8.9, NVIDIA X'; echo '12.0, NVIDIA Y'", "12.9 8.9,12.0 nvidia-smi can load"),
        ("echo '8.9, NVIDIA X'; echo '[N/A], Y'", "12.9  not every GPU was identified, of 2"),
        ("echo '8.9, NVIDIA X'; echo; exit 6", "12.9  nvidia-smi does not list the GPUs: 8.9,"),
        ("echo 'Field \"compute_cap\" is not a valid field'; exit 2", "12.9  nvidia-smi does not"),
    ],
)
def test_what_nvidia_smi_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, said: str
) -> None:
    smi = f'case "$1" in\n--query*) {listed} ;;\n*) echo "CUDA Version: 12.9" ;;\nesac\n'
    assert answered(monkeypatch, {"driver": ""}, smi, str(tmp_path)).startswith(said)


def test_a_share_opens_no_binary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch's have gigabytes, and nothing of them is in the line."""

    def opens(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(main, "build_report", opens)
    assert main.main(["--share"], __file__) == 0
    assert capsys.readouterr().out.startswith("wcw1:platform=")


def test_a_share_says_what_is_not_known(file: Path, tmp_path: Path) -> None:
    linux = Linux(tmp_path)
    smi = tmp_path / "bin/nvidia-smi"
    smi.write_text(smi.read_text().replace("8.9, NVIDIA", "[N/A], NVIDIA"))
    code, said, errors = linux.which(file, "--share")
    assert (code, said.count("\n")) == (0, 1)
    assert "not every GPU was identified" in errors


def test_a_way_without_https_is_not_gone() -> None:
    """Who sits on it could lead back to anywhere with https."""
    with answering(sends(catalogue(wheel()))) as good:

        def leads(handler: object, to: str) -> None:
            handler.send_response(302)  # type: ignore[attr-defined]
            handler.send_header("Location", to)  # type: ignore[attr-defined]
            handler.end_headers()  # type: ignore[attr-defined]

        with answering(lambda handler: leads(handler, f"{good}catalogue.json")) as back:
            assert len(fetch_rows(back)[0]) == 1
            bare = back.replace("127.0.0.1", "localhost")
            with (
                answering(lambda handler: leads(handler, bare)) as start,
                pytest.raises(RefusalError, match="redirects to an address without https"),
            ):
                fetch_rows(start)


@pytest.mark.parametrize("index", ["https://[x/", "https://h:99999/", "https://h:pw/", "~nobody/x"])
def test_an_address_that_is_none(index: str) -> None:
    with pytest.raises(RefusalError):
        fetch_rows(index)


def test_a_newer_index_says_what_to_take() -> None:
    with pytest.raises(RefusalError, match=r"version 2: use the which\.py of that index"):
        read_catalogue_rows(b'{"schema_version": 2, "wheels": []}')


def test_a_catalogue_of_nothing_but_lists_is_not_unfolded() -> None:
    """64 MiB of them took 1.7 GB."""
    with pytest.raises(RefusalError, match="too many parts"):
        read_catalogue_rows(b"[" + b"[]," * 2_000_001 + b"[]]")
