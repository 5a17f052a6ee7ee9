"""The stand-in for Visual Studio as nvcc and programs meet it, with genuine Windows binaries."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pefile
import pytest

import pipelines
from pipelines.core.errors import ConfigError
from pipelines.diagnosis.matcher import diagnose
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.msvc import finder
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import fetch_file
from pipelines.remote import process
from pipelines.stages.buildspec import environment_of
from pipelines.stages.line import Line, run_provision

SOURCES = Path(__file__).parent / "toolset"
NVCC = r"nvcc --use-local-env -Xcompiler /MD -gencode arch=compute_80,code=sm_80"


@pytest.fixture(scope="module")
def work(line: Line) -> Path:
    """``C:\\ts`` of a provisioned sandbox, as seen from here."""
    run_provision(line)
    host = line.plan.host
    assert isinstance(host, Sandbox)
    folder = host.prefix / "drive_c/ts"
    folder.mkdir(exist_ok=True)
    return folder


def typed(line: Line, work: Path, *commands: str) -> tuple[int, str]:
    """Exit code and output of commands in ``work``, after vcvarsall.bat; the first failure ends."""
    begin = [
        "@echo off",
        r"call C:\VS\VC\Auxiliary\Build\vcvarsall.bat x64",
        r"set PATH=C:\cuda\13.0\bin;%PATH%",
    ]
    each = [text for command in commands for text in (command, "if errorlevel 1 exit 1")]
    (work / "typed.bat").write_text("\r\n".join([*begin, *each]))
    script = ["cmd", "/c", r"C:\ts\typed.bat"]
    return line.session.call(process.capture, command=script, timeout=300, cwd=r"C:\ts")


def ask_dll(
    line: Line,
    work: Path,
    name: str,
    ask: str,
    *,
    libcxx: bool = True,
    standard: str = "-std=c++17",
) -> tuple[int, str]:
    """What compilers and Windows' Python print: a unit of nvcc as a DLL, in ``ask`` called f."""
    shutil.copy(SOURCES / f"{name}.cu", work)
    (work / "ask.py").write_text(f"import ctypes\nf = ctypes.CDLL(r'C:\\ts\\{name}.dll')\n{ask}\n")
    link = rf"cl /nologo /MD /LD {name}.obj /link /LIBPATH:C:\cuda\13.0\lib\x64"
    return typed(
        line,
        work,
        "set WCW_LIBCXX=1" if libcxx else "rem plain",
        f"{NVCC} {standard} -Xcompiler /EHsc -c {name}.cu -o {name}.obj",
        f"{link} cudart_static.lib",
        r"C:\Python311\python.exe ask.py",
    )


def imports(image: Path) -> dict[str, set[str]]:
    """DLL -> what is imported of it."""
    found = pefile.PE(str(image))
    return {
        entry.dll.decode().lower(): {symbol.name.decode() for symbol in entry.imports}
        for entry in found.DIRECTORY_ENTRY_IMPORT
    }


def test_an_error_in_a_header_is_shown(line: Line, work: Path) -> None:
    """In a system's header too, where cudafe++ would end without a word."""
    (work / "system").mkdir(exist_ok=True)
    (work / "system/broken.h").write_text("inline int broken() { return no_such_name; }\n")
    (work / "broken.cu").write_text("#include <broken.h>\n__global__ void kernel() {}\n")
    include = r"set INCLUDE=%INCLUDE%;C:\ts\system"
    code, output = typed(line, work, include, f"{NVCC} -c broken.cu -o broken.obj")
    assert code
    assert "broken.h(1)" in output
    assert '"no_such_name" is undefined' in output
    assert "0xC0000409" not in output


def test_a_long_response_file_is_read_to_its_end(line: Line, work: Path) -> None:
    """nvcc names what it compiles last: without its flags the object would have no device code."""
    (work / "kernel.cu").write_text("__global__ void kernel() {}\n")
    many = " ".join(rf"-IC:\ts\no-such-folder-{number}" for number in range(200))
    code, output = typed(line, work, f"{NVCC} {many} -c kernel.cu -o long.obj")
    assert code == 0, output
    assert b"kernel" in (work / "long.obj").read_bytes()
    assert b".nv_fatb" in (work / "long.obj").read_bytes()


def test_an_imported_constant_that_nobody_reads_is_no_import(line: Line, work: Path) -> None:
    """Torch's headers have such members by the hundred, and no library has them all."""
    text = "struct __declspec(dllimport) Limits { static const int most = 3; };\n"
    (work / "member.cu").write_text(
        f'{text}__global__ void kernel() {{}}\nextern "C" __declspec(dllexport) int most()\n'
        "{ kernel<<<1, 1>>>(); return Limits::most; }\n"
    )
    compiled = f"{NVCC} -c member.cu -o member.obj"
    linked = (
        r"link /nologo /dll /out:member.dll member.obj cudart.lib /libpath:C:\cuda\13.0\lib\x64"
    )
    code, output = typed(line, work, compiled, linked)
    assert code == 0, output
    assert b".nv_fatb" in (work / "member.dll").read_bytes()


def test_exceptions_come_from_the_run_time_that_other_dlls_have(line: Line, work: Path) -> None:
    (work / "copy.c").write_text(
        "#include <string.h>\n#include <stdlib.h>\n"
        "int _CxxThrowException(void *, void *);\n"
        "__declspec(dllexport) void *copy(void *from, size_t size)\n"
        "{ if (!size) _CxxThrowException(0, 0);\n"
        "  return memcpy(malloc(size), from, size); }\n"
    )
    code, output = typed(line, work, "cl /nologo /O2 /MD /LD copy.c")
    assert code == 0, output
    found = imports(work / "copy.dll")
    assert {"_CxxThrowException", "memcpy"} <= found["vcruntime140.dll"]
    assert "malloc" in found["ucrtbase.dll"]
    assert not found["ucrtbase.dll"] & found["vcruntime140.dll"]


@pytest.mark.usefixtures("libcxx_there")
def test_cxx_runs_with_libcxx(line: Line, work: Path) -> None:
    """Exceptions, types, threads, statics, streams: of one DLL, called from the genuine Python."""
    shutil.copy(SOURCES / "checks.cpp", work)
    ask = (
        "import ctypes; f = ctypes.CDLL(r'C:\\ts\\checks.dll').checks; f.restype = ctypes.c_char_p"
    )
    (work / "ask.py").write_text(f"{ask}\nprint('failed:', f().decode() or 'none')\n")
    compile_ = "cl /nologo /O2 /MD /EHsc /std:c++17 /LD checks.cpp"
    code, output = typed(line, work, compile_, r"C:\Python311\python.exe ask.py")
    assert code == 0, output
    assert "failed: none" in output
    assert not any(
        name.startswith("?")
        for names in imports(work / "checks.dll").values()
        for name in names
        if "ExceptionPtr" not in name
    )


@pytest.mark.usefixtures("libcxx_there")
def test_kernels_are_compiled_beside_libcxx(line: Line, work: Path) -> None:
    """NVIDIA's headers refuse libc++ (host_defines.h): units of nvcc do not see it."""
    (work / "beside.cu").write_text(
        "#include <cmath>\n#include <cstdint>\n__global__ void k() {}\n"
    )
    code, output = typed(line, work, f"{NVCC} -c beside.cu -o beside.obj")
    assert code == 0, output


@pytest.mark.parametrize("libcxx", [False, True], ids=["plain", "libcxx"])
@pytest.mark.usefixtures("libcxx_there")
def test_printf_and_variable_arguments(line: Line, work: Path, *, libcxx: bool) -> None:
    """At the standard that nvcc takes by itself."""
    code, output = ask_dll(line, work, "printf", "print(f.answer())", libcxx=libcxx, standard="")
    assert (code, output.split()[-1]) == (0, "1139"), output


@pytest.mark.usefixtures("libcxx_there")
def test_complex_numbers(line: Line, work: Path) -> None:
    code, output = ask_dll(line, work, "complex", "print(f.wrong())")
    assert (code, output.split()[-1]) == (0, "0"), output


@pytest.mark.usefixtures("libcxx_there")
def test_an_error_in_a_header_is_named(line: Line, work: Path) -> None:
    """cudafe++ ends without a word where the header is below Visual Studio's directory."""
    (work / "bad.cu").write_text("#define _Tp 3\n#include <vector>\n")
    compile_ = f"{NVCC} -std=c++17 -Xcompiler /EHsc -c bad.cu -o bad.obj"
    code, output = typed(line, work, "set WCW_LIBCXX=1", compile_)
    assert code
    assert "): error:" not in output
    code, output = typed(line, work, "set WCW_LIBCXX=1", "set WCW_NAME_ERRORS=1", compile_)
    assert code
    assert re.search(r"libcxx\\include/\S+\(\d+\): error:", output), output


@pytest.mark.usefixtures("libcxx_there")
def test_units_of_nvcc_have_libcxx_where_a_build_asks_for_it(line: Line, work: Path) -> None:
    """Read by cudafe++, compiled by clang, run: exceptions, texts, trees, threads, atomics."""
    ask = (
        "f.number.restype, f.number.argtypes = ctypes.c_double, [ctypes.c_float]\n"
        "print('answers:', f.answer(5), f.answer(12), f.number(4), f.atomics())"
    )
    code, output = ask_dll(line, work, "library", ask)
    assert code == 0, output
    assert "answers: 2051 3121 28.0 112114211" in output
    assert b"kernel" in (work / "library.dll").read_bytes()


@pytest.mark.usefixtures("libcxx_there")
def test_kernels_of_cutlass_are_compiled(line: Line, work: Path) -> None:
    """Types and layouts of CuTe, and a conversion, as FlashAttention 2 has them."""
    recipe = load_recipe("flash-attn")
    assert isinstance(recipe.source, FileSource)
    with tarfile.open(fetch_file(recipe.source, recipe, line.plan.cache)) as source:
        for member in source:
            _, found, name = member.name.partition("/csrc/cutlass/include/")
            if found and (content := member.isfile() and source.extractfile(member)):
                (work / "cutlass" / name).parent.mkdir(parents=True, exist_ok=True)
                (work / "cutlass" / name).write_bytes(content.read())
    shutil.copy(SOURCES / "cutlass.cu", work)
    flags = "-std=c++17 -Xcompiler /EHsc --expt-relaxed-constexpr -D_USE_MATH_DEFINES -Icutlass"
    code, output = typed(
        line, work, "set WCW_LIBCXX=1", f"{NVCC} {flags} -c cutlass.cu -o cutlass.obj"
    )
    assert code == 0, output
    assert b"scaled" in (work / "cutlass.obj").read_bytes()


@pytest.mark.usefixtures("libcxx_there")
def test_cub_and_thrust_are_compiled_and_linked(line: Line, work: Path) -> None:
    code, output = ask_dll(line, work, "cub", "f.sorted")
    assert code == 0, output
    assert b"DeviceScanKernel" in (work / "cub.dll").read_bytes()


@pytest.mark.usefixtures("libcxx_there")
def test_alloca_comes_with_memory(line: Line, work: Path) -> None:
    """As with Microsoft's <memory>: nanobind 3.1.0, src/nb_func.cpp."""
    (work / "a.cpp").write_text("#include <memory>\nchar f(int n) { return *(char *)alloca(n); }\n")
    code, output = typed(line, work, "cl /nologo /c /MD /EHsc a.cpp")
    assert code == 0, output


@pytest.mark.usefixtures("libcxx_there")
def test_a_missing_header_is_named(line: Line, work: Path) -> None:
    (work / "ppl.cpp").write_text("#include <ppl.h>\n")
    code, output = typed(line, work, "cl /nologo /c /MD /EHsc ppl.cpp")
    assert code
    assert "'ppl.h' file not found" in output


@pytest.mark.parametrize(
    ("name", "source", "what"),
    [
        ("a.cpp", "__m256i f(int a) { return _mm256_set1_epi32(a); }", "arch"),
        ("b.cpp", "unsigned f(unsigned *r) { return _udiv64(9, 2, r); }", "missing"),
        ("c.c", "unsigned f(unsigned *r) { return _udiv64(9, 2, r); }", "missing"),
        ("d.c", "void f(void) { __addgsbyte(1, 2); }", "missing"),
        ("e.cu", "unsigned f(unsigned *r) { return _udiv64(9, 2, r); }", "missing"),
    ],
)
def test_a_missing_intrinsic_is_named(
    line: Line, work: Path, name: str, source: str, what: str
) -> None:
    """By the compiler, by the linker, or by nvcc's own reading of the host's code."""
    of_nvcc = name.endswith("cu")
    (work / name).write_text(f"{'' if of_nvcc else '#include <intrin.h>'}\n{source}\n")
    compile_ = f"{NVCC} -c {name} -o x.obj" if of_nvcc else f"cl /nologo /c /MD {name}"
    code, output = typed(line, work, compile_, f"link /nologo /DLL /OUT:x.dll {name[0]}.obj")
    assert code
    found = diagnose(output.splitlines())
    assert found is not None
    assert found.signature.id == f"intrinsic-{what}-stand-in", output
    assert any(word in found.cause.text for word in ("_mm256_set1_epi32", "_udiv64", "__addgsbyte"))


def test_the_stand_in_is_a_tree_as_visual_studio_has_it(line: Line, work: Path) -> None:
    tree = finder.find_msvc_tree(work.parent / "VS", finder.BASE)
    assert (tree.version, tree.sdk) == ("14.40.33807", "10.0.0.0")
    (work.parent / "VS/VC/Tools/MSVC/14.41.1").mkdir()
    try:
        with pytest.raises(ConfigError, match="2 versions"):
            finder.find_msvc_tree(work.parent / "VS", finder.BASE)
    finally:
        (work.parent / "VS/VC/Tools/MSVC/14.41.1").rmdir()


def test_no_date_is_written_down(line: Line, work: Path) -> None:
    """Of a reproducible build; two builds of one day would not show it."""
    (work / "dated.c").write_text('const char made[] = "on " __DATE__ " at " __TIME__;\n')
    environment = environment_of(line.plan, 1)
    told = [f"set {name}={environment[name]}" for name in ("SOURCE_DATE_EPOCH", "CL")]
    code, output = typed(line, work, *told, "cl /nologo /c dated.c")
    assert code == 0, output
    data = (work / "dated.obj").read_bytes()
    assert b"on Jan  1 2024 at 00:00:00" in data
    assert data[4:8] == bytes(4), "the time in the COFF header"


def test_code_does_not_go_by_where_memory_lies(line: Line, work: Path) -> None:
    """Under Wine that goes by how long variables are.

    cicc.exe alone, as nvcc starts it: of 250 lengths 15 gave other code when nothing was told.
    """
    source = Path(pipelines.__file__).parent / "examples/smoke_attention/src"
    shutil.copytree(source, work / "attention", dirs_exist_ok=True)
    told = f"set NVCC_APPEND_FLAGS={environment_of(line.plan, 1)['NVCC_APPEND_FLAGS']}"
    nvcc = "nvcc --use-local-env -keep -ptx -arch=compute_80 -o a.ptx"
    nvcc += r" C:\ts\attention\attention_fp32_narrow.cu"
    code, output = typed(line, work, told, nvcc, f"{nvcc} --dryrun")
    assert code == 0, output
    (cicc,) = re.findall(r'^#\$ "("%CICC_PATH%\\cicc" .*)"\r?$', output, re.MULTILINE)
    at = r"set CICC_PATH=C:\cuda\13.0\nvvm\bin"
    lengths = range(1, 6000, 151)
    each = (f"set LONG={'x' * n}\r\n{cicc}\r\ncopy a.ptx {n}.ptx >nul" for n in lengths)
    code, output = typed(line, work, at, *each)
    assert code == 0, output
    assert {(work / f"{n}.ptx").read_bytes() for n in lengths} == {(work / "a.ptx").read_bytes()}
