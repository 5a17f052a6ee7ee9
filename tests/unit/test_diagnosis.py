"""Diagnoses: every signature by its sample, whole logs, and logs that mean harm."""

from __future__ import annotations

import io
import re
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from timing import cost

from pipelines.core import github
from pipelines.core.errors import ConfigError
from pipelines.diagnosis import Diagnosis, Signature, diagnose, diagnose_file, load_catalogue
from pipelines.diagnosis import report as reports
from pipelines.diagnosis.heal import Settings, heal
from pipelines.diagnosis.issue import anonymize_text, format_issue
from pipelines.diagnosis.model import load_codes, read_signature_catalogue
from pipelines.diagnosis.needles import Needles

CATALOGUE = load_catalogue()
EVERY = pytest.mark.parametrize("signature", CATALOGUE.signatures, ids=lambda s: s.id)
NEEDLES = Needles(CATALOGUE.by_needle)
DIAGNOSED = [signature for signature in CATALOGUE.signatures if signature.kind != "fact"]

#: What this project has collected of real failures; each must keep its signature.
KNOWN = """
wheel-404 ninja-wrapper oom-edg oom-llvm oom-c1060 paging-1455 ptxas-av cudafe-409 vs-unsupported
stl1002 zc-preproc align-c2719 arrayref-c2666 cxx20-hdr std-ambig cutlass-traits m-log2e
constexpr-c2975 longpath-git longpath-ninja longpath-cl cutlass-missing winerror206 lnk1248
lnk1104-py lnk1181-torch x86-env gnu-link no-cl vc-missing vc-sdk cuda-home cuda-mismatch
arch-unsupported arch-indexerror no-torch oem-decode rename-xdev dll-proc dll-mod no-kernel ampere
fa3-keyerror no-backward gh-6h
""".split()  # noqa: SIM905

UNIT = "C:/b/0123456789ab/src/build/temp.win-amd64-cpython-311/Release/csrc/flash_attn/src"
NVCC = r"C:\toolkit\bin\nvcc -c -std=c++17 -Xcompiler /MD -gencode arch=compute_80,code=sm_80"


def healthy(units: int, *, first: int = 1, of: int = 73) -> list[str]:
    """What a build prints while all is well: commands, warnings of every compiler."""
    lines = []
    for unit in range(first, first + units):
        lines += [
            rf"[{unit}/{of}] {NVCC} -o {UNIT}/flash_fwd_{unit}.obj",
            "cl : Command line warning D9025 : overriding '/D__CUDA_NO_HALF_OPERATORS__'",
            r"C:\b\torch\include\c10/util/irange.h(54): warning #186-D: pointless comparison",
            "ptxas info    : 0 bytes gmem, 80 bytes cmem[4]",
            f"flash_fwd_{unit}.cu",
            f"tmpxft_0000{unit:04x}_00000000-7_flash_fwd_{unit}.compute_80.cudafe1.cpp",
        ]
    return lines


def failed(unit: str, *said: str) -> list[str]:
    """What ninja prints of a unit that failed."""
    return [f"FAILED: {UNIT}/{unit}.obj", f"{NVCC} -o {UNIT}/{unit}.obj", *said]


FLASH_ATTN_HEAD = [
    "running bdist_wheel",
    "Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/"
    "flash_attn-2.8.3+cu12torch2.8cxx11abiFALSE-cp311-cp311-win_amd64.whl",
    "Precompiled wheel not found. Building from source...",
    "running build_ext",
]
FLASH_ATTN_END = [
    "ninja: build stopped: subcommand failed.",
    "Traceback (most recent call last):",
    r'  File "C:\p\Lib\site-packages\torch\utils\cpp_extension.py", line 2104, in _run_ninja_build',
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
    "RuntimeError: Error compiling objects for extension",
    "ERROR: Failed building wheel for flash-attn",
]


def found(diagnosis: Diagnosis | None) -> list[tuple[str, int]]:
    """Every finding as signature and line, the cause first."""
    if diagnosis is None:
        return []
    return [(f.signature.id, f.line) for f in (diagnosis.cause, *diagnosis.others)]


def cause_in(log: Any, above: int = 0) -> Diagnosis:
    """The diagnosis of a log that has one."""
    diagnosis = diagnose(log, above=above)
    assert diagnosis is not None
    return diagnosis


def encoded(lines: list[str], encoding: str = "utf-8", end: str = "\n") -> io.BytesIO:
    return io.BytesIO("".join(line + end for line in lines).encode(encoding))


# -- the catalogue --------------------------------------------------------------------------------


def test_every_known_failure_has_a_signature() -> None:
    assert len(KNOWN) == len(set(KNOWN)) == 45
    assert not set(KNOWN) - set(CATALOGUE.by_id)


@pytest.mark.parametrize("signature", DIAGNOSED, ids=lambda s: s.id)
def test_sample_is_diagnosed_as_its_signature(signature: Signature) -> None:
    diagnosis = cause_in(signature.sample.splitlines())
    assert diagnosis.signature is signature
    causes = [f.signature for f in diagnosis.others if f.signature.kind == "cause"]
    assert all(cause.order > signature.order for cause in causes), "a line has one cause"


ALSO = [(signature, line) for signature in CATALOGUE.signatures for line in signature.also]


@pytest.mark.parametrize(("signature", "line"), ALSO, ids=[line[:40] for _, line in ALSO])
def test_other_wordings_are_diagnosed_as_the_same(signature: Signature, line: str) -> None:
    diagnosis = cause_in([*healthy(3), line, *healthy(3)])
    assert diagnosis.signature is signature


def test_a_missing_program_of_the_toolkit_is_not_taken_for_a_busy_host() -> None:
    """nvcc exits with 255 for both; building on with one unit at a time would help nothing."""
    silent = CATALOGUE.by_id["nvcc-silent"].sample
    toolkit = CATALOGUE.by_id["toolkit-file"]
    for line in (toolkit.sample, *toolkit.also):
        diagnosis = cause_in(["FAILED: a.obj", line, silent])
        assert diagnosis.signature is toolkit
        assert heal(diagnosis, Settings(jobs=4, build_root="C:\\b")) is None
    assert "invoke provision --repair" in toolkit.hint


@pytest.mark.parametrize(
    "line", ["'cl' is not recognized as an internal", "'nvcc' is not recognized as an internal"]
)
def test_other_programs_are_not_of_the_toolkit(line: str) -> None:
    diagnosis = cause_in([line])
    assert diagnosis.signature.id != "toolkit-file"


@pytest.mark.slow
@pytest.mark.parametrize("signature", DIAGNOSED, ids=lambda s: s.id)
def test_sample_is_found_below_thousands_of_lines(signature: Signature) -> None:
    above = healthy(400)
    if "minutes" in signature.needs:
        above[0] = "2025-11-02T10:02:11.100Z Run wcw"
    diagnosis = cause_in(encoded([*above, *signature.sample.splitlines(), *healthy(400)]))
    assert diagnosis.signature is signature
    begins = next(
        n for n, s in enumerate(signature.sample.splitlines()) if signature.groups(s) is not None
    )
    assert diagnosis.cause.line == len(above) + 1 + begins
    assert diagnosis.lines == 2 * len(above) + len(signature.sample.splitlines())


@pytest.mark.slow
@EVERY
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_the_regex_matches_has_a_needle(signature: Signature, data: st.DataObject) -> None:
    """Otherwise the pass over the log would jump over it."""
    # Lookarounds are no business of the needles, and Hypothesis cannot generate them.
    regex = re.sub(r"\(\?[!=](?:[^()]|\([^()]*\))*\)", "", signature.regex)
    text = data.draw(st.from_regex(re.compile(regex, re.ASCII)))
    assert any(needle in text for needle in signature.needles)


def test_what_heals_by_itself_says_how_a_person_would() -> None:
    """What the pipeline sets is also in the hint, so that the two cannot drift apart."""
    for signature in CATALOGUE.signatures:
        for remedy in signature.heals:
            values = [
                *getattr(remedy, "versions", ())[:1],
                getattr(remedy, "variable", ""),
                getattr(remedy, "value", ""),
                getattr(remedy, "flag", ""),
                getattr(remedy, "root", ""),
            ]
            if remedy.kind == "fewer-jobs":
                values.append("--jobs")
            if signature.id == "cudafe-409":
                values = ["14.38", "CL", "_CL_", "/permissive-", "/std:"]
            assert not [v for v in values if v not in signature.hint], signature.id


#: What four guides to building flash-attn, xFormers and candle on Windows advise: what a log shows
#: of the case -> what the diagnosis must tell.
ADVICE = [
    ("ImportError: DLL load failed while importing flash_attn_2_cuda: The specified procedure "
     "could not be found.", ("torch==", "--no-build-isolation", "prebuilt wheel")),
    ("urllib.error.HTTPError: HTTP Error 404: Not Found",
     ("FLASH_ATTENTION_FORCE_BUILD", "--prefer-binary")),
    ("ninja: build stopped: subcommand failed.", ("clean directory", "-v")),
    ("RuntimeError: CUDA error: invalid argument", ("nvidia-smi", "compute_cap", "--archs")),
    ("RuntimeError: no kernel image is available for execution on the device",
     ("nvidia-smi", "+PTX", "12.8")),
    ("nvcc fatal   : Cannot find compiler 'cl.exe' in PATH",
     ("DISTUTILS_USE_SDK=1", "vcvarsall.bat x64")),
    ("error: Microsoft Visual C++ 14.0 or greater is required.",
     ("Desktop development with C++",)),
    ("'nvcc' is not recognized as an internal or external command,",
     ("nvcc --version", "PATH", "CUDA_PATH")),
    ("ERROR: x-cp310-cp310-win_amd64.whl is not a supported wheel on this platform.",
     ("platform.architecture()", "64bit")),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.",
     ("smaller batch", "float16", "CUDA_MODULE_LOADING", "shorter sequences")),
    ("ERROR: Failed building wheel for flash-attn",
     ("-v", "pip wheel . ", "--no-build-isolation", "--no-deps", "-w dist")),
    ("##[error]The operation was canceled.", ("MAX_JOBS", "--archs", "finished units")),
    ("catastrophic error : out of memory", ("MAX_JOBS", "Do not clean")),
    ("fatal error C1083: Cannot open include file: 'cute/tensor.hpp': No such file or directory",
     ("git submodule update --init",)),
    ("The detected CUDA version (11.8) mismatches the version that was used to compile",
     ("cuXXX", "--no-build-isolation")),
    ("ninja: error: Stat(C:/x.obj): Filename longer than 260 characters",
     ("LongPathsEnabled", "restart", "TEMP and TMP")),
    ("error: unable to create file a.html: Filename too long", ("core.longpaths true",)),
    ("ModuleNotFoundError: No module named 'torch'", ("--no-build-isolation",)),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
     ("use_flash_attention: false", "30 to 40 %", "pip install --no-deps xformers")),
    ("ERROR: flash_attn-2.3.6-cp310-cp310-win_amd64-cuda12.3-sm89.whl is not a valid wheel "
     "filename.", ("+cu123",)),
    ("A matching Triton is not available, some optimizations will not be enabled",
     ("xformers.info",)),
    ("NotImplementedError: No operator found for `memory_efficient_attention_forward`",
     ("python -m xformers.info", "flshattF")),
    ("LINK : fatal error LNK1181: cannot open input file 'flashattention.lib'",
     ("lib /OUT:libflashattention.a", "put it back")),
    ("= note: perhaps two different versions of crate `candle_core` are being used?",
     ("git = ", "one tag")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "told"), ADVICE, ids=lambda value: value[:30])
def test_advice_of_the_guides_is_reached(line: str, told: tuple[str, ...]) -> None:
    diagnosis = cause_in([line])
    hint = diagnosis.signature.hint
    assert not [text for text in told if text not in hint], hint


#: What was not known, or taken for something else: the line as it was printed, and its signature.
GAPS = [
    (r"x.cpp : fatal error C1085: Cannot write compiler generated file: 'E:\sdk\x.obj': "
     "No space left on device", "disk-full"),
    (r"xstring(3284): fatal error C1088: Cannot flush compiler intermediate file: "
     r"'C:\t\_CL_e6565551ex': No space left on device", "disk-full"),
    ("mxnet_op.h(772): catastrophic error: error while writing generated C file: "
     "No space left on device", "disk-full"),
    ("OSError: [WinError 112] There is not enough space on the disk", "disk-full"),
    ("OSError: [Errno 28] No space left on device", "disk-full"),
    ("error: failed to write: There is not enough space on the disk. (os error 112)", "disk-full"),
    ("a.cu(3): fatal error C1083: Cannot open include file: 'cuda_runtime.h': No such file or "
     "directory", "cuda-header"),
    ("unique.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory", "cuda-header"),
    (r"I:\torch/csrc/python_headers.h(12): fatal error C1083: Cannot open include file: "
     "'Python.h': No such file or directory", "python-header"),
    ("/t/main.c:5:10: fatal error: Python.h: No such file or directory", "python-header"),
    (r"cutlass_matmul.h(40): fatal error C1083: Cannot open include file: 'cutlass/cutlass.h': "
     "No such file or directory", "cutlass-missing"),
    ("g.cu:8:10: fatal error: cutlass/bfloat16.h: No such file or directory", "cutlass-missing"),
    ("cerrno(12): fatal error C1083: Cannot open include file: 'errno.h': No such file or "
     "directory", "windows-header"),
    ("subprocess.CalledProcessError: Command '['where', 'cl']' returned non-zero exit status 1.",
     "no-cl"),
    ("LINK : fatal error LNK1189: library limit of 65535 objects exceeded", "lnk1189"),
    ("torch.h(14,1): fatal error C1001: Internal compiler error.", "cl-internal"),
    ("MemoryError", "python-memory"),
    ("      MemoryError: Unable to allocate 2.00 GiB", "python-memory"),
    ("      ModuleNotFoundError: No module named 'packaging'", "no-module"),
    ("ModuleNotFoundError: No module named 'torch'", "no-torch"),
    ("ptxas fatal : Memory allocation failure", "oom-llvm"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "signature"), GAPS, ids=lambda value: value[:40])
def test_a_unit_that_fails_so_is_known(line: str, signature: str) -> None:
    """What ninja prints around it does not hide it, and it is not said twice."""
    diagnosis = cause_in([*healthy(3), *failed("flash_fwd_4", line), *FLASH_ATTN_END])
    assert diagnosis.signature.id == signature
    assert diagnosis.cause.text == line.strip()
    console = Console(width=300, color_system=None)
    with console.capture() as shown:
        console.print(reports.render_diagnosis(diagnosis))
    assert shown.get().count(line.strip()) == 1


def test_a_path_with_no_such_file_in_it_is_no_header() -> None:
    for line in (
        "fatal: my_cuda.hpp: No such file or directory",
        "cuda.html: No such file or directory",
    ):
        diagnosis = diagnose([line])
        assert diagnosis is None or diagnosis.signature.id == "git-fatal"


def test_no_package_is_advised_in_the_place_of_another() -> None:
    """What is said of any package's failure does not name the releases of one."""
    for signature in CATALOGUE.signatures:
        if signature.kind != "cause":
            assert "2.7.4" not in signature.hint, signature.id


def test_mistakes_of_the_guides_are_not_repeated() -> None:
    wrong = (
        r"FLASH_ATTN_CUDA_ARCHS=(?:\d+;)*(?:75|86|89)\b",  # ignored: no code comes of it
        r"if True",  # editing setup.py
        r"Launch-VsDevShell",  # a 32-bit prompt unless told otherwise, and no batch file
        r"CMAKE_VERBOSE_MAKEFILE",  # nothing reads it
        r"cargo check",  # does not link
        r"-cuda12\.3-sm89\.whl",
        r"rmdir /s",
    )
    for signature in CATALOGUE.signatures:
        assert not [w for w in wrong if re.search(w, signature.hint)], signature.id
    assert "changes nothing" in CATALOGUE.by_id["longpath-cl"].cause  # LongPathsEnabled alone


# -- a catalogue that is wrong --------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "id": "boom",
    "regex": r"boom \d{1,4}",
    "needles": ["boom "],
    "sample": "boom 12",
    "cause": "It went boom.",
    "hint": "Do not.",
    "evidence": ["https://example.org/1"],
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"regex": "boom ("}, "not a regular expression"),
        ({"regex": r"boom .*12"}, "unbounded repeat '*'"),
        ({"regex": r"boom \d+"}, "unbounded repeat '+'"),
        ({"regex": r"boom \d{1,}"}, "unbounded repeat '{1,}'"),
        ({"regex": r"boom (?:\d{1,4}){1,4}"}, "repeats a group"),
        ({"regex": r"boom .{0,99}.{0,99}12|boom 12"}, "10000 ways"),
        ({"regex": r"[*+]boom \d{1,4}"}, "does not match the sample"),
        ({"sample": "bang"}, "does not match the sample"),
        ({"needles": ["bang"]}, "none of the needles"),
        ({"needles": ["bo"]}, "at least 4 characters"),
        ({"needles": ["böööm"]}, "printable ASCII"),
        ({"evidence": []}, "evidence_note"),
        ({"evidence": ["FA#12"]}, "expected "),
        ({"kind": "guess"}, "'cause', 'reader', 'wrapper', 'warning' or 'fact'"),
        ({"codes": "x"}, "is one of winerror"),
        ({"codes": "winerror"}, "needs a group 'code'"),
        ({"heals": [{"kind": "pray"}]}, "unknown kind 'pray'; there are"),
        ({"heals": [{"kind": "fewer-jobs"}], "kind": "wrapper"}, "a wrapper cannot have heals"),
        ({"heals": [{"kind": "set", "variable": "a b", "value": "1"}]}, "expected "),
        ({"fix": "x"}, "unknown key"),
        ({"hint": " "}, "at least 1 character"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_catalogue_names_file_key_and_expectation(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "catalogue.yaml"
    path.write_text(yaml.safe_dump({"signatures": [GOOD]}))
    assert read_signature_catalogue(path).by_id["boom"].order == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump({"signatures": [GOOD | {"id": "other"}, GOOD | change]}))
    with pytest.raises(ConfigError) as caught:
        read_signature_catalogue(bad)
    assert told in caught.value.message
    assert f"{bad}: signatures.boom" in caught.value.message


def test_catalogue_that_is_no_catalogue(tmp_path: Path) -> None:
    for text in ("signatures: [", "[]", "signatures: []", "signatures: 3", "\x00"):
        path = tmp_path / f"{abs(hash(text))}.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            read_signature_catalogue(path)
    twice = tmp_path / "twice.yaml"
    twice.write_text(yaml.safe_dump({"signatures": [GOOD, GOOD]}))
    with pytest.raises(ConfigError, match="same id: boom"):
        read_signature_catalogue(twice)


# -- whole logs -----------------------------------------------------------------------------------


def test_memory_in_cudafe_far_above_the_end() -> None:
    lines = [
        *FLASH_ATTN_HEAD,
        *healthy(9),
        *failed(
            "flash_bwd_hdim256_bf16_sm80",
            "layout_composed.hpp(478): catastrophic error : out of memory",
            "1 catastrophic error detected in the compilation of flash_bwd_hdim256_bf16_sm80.cu.",
            "Compilation terminated.",
        ),
        *healthy(500, first=10),
        *failed("flash_bwd_hdim192_bf16_sm80", "nvcc error   : 'cudafe++' died with status 0x1"),
        *FLASH_ATTN_END,
    ]
    diagnosis = cause_in(encoded(lines))
    at = lines.index("layout_composed.hpp(478): catastrophic error : out of memory") + 1
    assert found(diagnosis)[0] == ("oom-edg", at)
    assert at < len(lines) - 3000
    assert diagnosis.cause.unit == f"{UNIT}/flash_bwd_hdim256_bf16_sm80.obj"
    assert diagnosis.cause.below == (lines[at], lines[at + 1])  # down to the next unit
    assert {"ninja-wrapper", "wheel-404", "unit-failed"} <= {n for n, _ in found(diagnosis)}
    assert [line for _, line in found(diagnosis)[1:]] == sorted(
        line for _, line in found(diagnosis)[1:]
    )


LOGS: dict[str, tuple[list[str], str]] = {
    "path too long for cl": (
        [
            *FLASH_ATTN_HEAD,
            *failed("flash_api", "flash_api.cpp : fatal error C1083: Cannot open compiler "
                    "generated file: '': Invalid argument"),
            *FLASH_ATTN_END,
        ],
        "longpath-cl",
    ),
    "path too long, in Chinese": (
        [*failed("a", "a.cpp: fatal error C1083: 无法打开编译器生成的文件: “”: Invalid argument")],
        "longpath-cl",
    ),
    "404 raised while another error is handled": (
        [
            "ninja: build stopped: subcommand failed.",
            r'  File "C:\t\setup.py", line 468, in run',
            "urllib.error.HTTPError: HTTP Error 404: Not Found",
            "During handling of the above exception, another exception occurred:",
            "RuntimeError: Error compiling objects for extension",
        ],
        "ninja-wrapper",
    ),
    "404 only": ([*FLASH_ATTN_HEAD, "urllib.error.HTTPError: HTTP Error 404: Not Found"],
                 "wheel-404"),
    "no cl, in German": (
        [
            r"C:\p\Lib\site-packages\torch\utils\cpp_extension.py:383: UserWarning: Error checking "
            "compiler version for cl: [WinError 2] Das System kann die angegebene Datei nicht "
            "finden",
            "  warnings.warn(f'Error checking compiler version for {compiler}: {error}')",
            "error: Microsoft Visual C++ 14.0 or greater is required. Get it with ...",
            "error: subprocess-exited-with-error",
        ],
        "vc-missing",
    ),
    "no cl at all": (
        ["UserWarning: Error checking compiler version for cl: [WinError 2] nicht gefunden",
         "error: [WinError 2] Das System kann die angegebene Datei nicht finden",
         "ERROR: Failed building wheel for exllama"],
        "cl-unchecked",
    ),
    "CUDA mismatch over two lines": (
        [
            *FLASH_ATTN_HEAD,
            "      RuntimeError:",
            "    The detected CUDA version (11.8) mismatches the version that was used to compile",
            "      PyTorch (12.4). Please make sure to use the same CUDA versions.",
            "      error: subprocess-exited-with-error",
        ],
        "cuda-mismatch",
    ),
    "minor CUDA mismatch is no error": (
        [
            "UserWarning: The detected CUDA version (12.6) has a minor version mismatch with the "
            "version that was used to compile PyTorch (12.4). Most likely this shouldn't be a "
            "problem.",
            *failed("a", "LINK : fatal error LNK1181: cannot open input file 'c10_cuda.lib'"),
        ],
        "lnk1181-torch",
    ),
    "toolset too new": (
        [
            *failed("a", r"C:\cuda\include\crt/host_config.h(164): fatal error C1189: #error:  -- "
                    "unsupported Microsoft Visual Studio version! Only the versions between 2017 "
                    "and 2022 (inclusive) are supported!"),
            *FLASH_ATTN_END,
        ],
        "vs-unsupported",
    ),
    "quota of WinRM's shell": (
        ["c1xx: error C3859: Failed to create virtual memory for PCH",
         "c1xx: note: the system returned code 1455: The paging file is too small for this "
         "operation to complete."],
        "paging-1455",
    ),
    "cicc by cmake": (
        ["CUDACOMPILE : error : '\"%CICC_PATH%\\cicc\"' died with status 0xC0000409"],
        "oom-llvm",
    ),
    "Chinese linker": (["LINK : fatal error LNK1181: 无法打开输入文件“torch_cuda.lib”"],
                       "lnk1181-torch"),
    "unknown error before the end": (
        [*healthy(3), *failed("a", "a.cu(12): error: no instance of overloaded function matches"),
         *healthy(3), *FLASH_ATTN_END],
        "compile-error",
    ),
    "unit that says nothing": ([*healthy(3), *failed("a"), *FLASH_ATTN_END], "unit-failed"),
    "only the last lines are there": (FLASH_ATTN_END, "ninja-wrapper"),
    "pip alone": (["error: subprocess-exited-with-error", "ERROR: Failed building wheel for x"],
                  "pip-wrapper"),
    "a warning and an error": (
        ["A matching Triton is not available, some optimizations will not be enabled",
         "RuntimeError: CUDA error: no kernel image is available for execution on the device"],
        "no-kernel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_first_real_cause(name: str) -> None:
    lines, wanted = LOGS[name]
    diagnosis = cause_in(encoded(lines))
    assert diagnosis.signature.id == wanted
    assert diagnosis.cause.text in "\n".join(lines)


def test_first_of_two_causes_counts() -> None:
    two = ["nvcc fatal   : Unsupported gpu architecture 'compute_35'", "[WinError 206] too long"]
    assert found(diagnose(two))[0] == ("arch-unsupported", 1)
    assert found(diagnose(two[::-1]))[0] == ("winerror206", 1)
    both = diagnose([" and ".join(two)])
    assert [name for name, _ in found(both)] == [
        "arch-unsupported", "compile-error", "winerror206", "winerror"
    ]  # fmt: skip


def test_log_without_an_error_is_none() -> None:
    good = [*FLASH_ATTN_HEAD[3:], *healthy(800), "Successfully built flash_attn-2.8.3.whl",
            "0 errors, 0 failed", r"C:\b\error_codes.cpp -Werror", "copying errors.py"]  # fmt: skip
    assert diagnose(encoded(good)) is None
    assert diagnose(io.BytesIO()) is None
    assert diagnose([]) is None


# -- what a signature claims -----------------------------------------------------------------------

RAISED = [
    "Traceback (most recent call last):",
    '  File "C:\\e\\lib\\site-packages\\ops\\__init__.py", line 16, in <module>',
    '  File "C:\\e\\lib\\site-packages\\torch\\_ops.py", line 1392, in load_library',
    '  File "C:\\e\\lib\\ctypes\\__init__.py", line 374, in __init__',
]


def cause_of(*lines: str) -> tuple[str, str]:
    diagnosis = cause_in(lines)
    return diagnosis.signature.id, diagnosis.cause.confidence


def test_an_exception_names_its_packages_and_the_last_one_counts() -> None:
    diagnosis = cause_in([*RAISED, "ValueError: first", "", *RAISED, "ops.OddError: second: why"])
    assert found(diagnosis) == [("python-exception", 11)]
    assert diagnosis.cause.values["exception"] == "ops.OddError"
    assert diagnosis.cause.values["raised"] == "ops -> torch"
    assert "ops -> torch" in diagnosis.cause.cause
    assert "second: why" in diagnosis.cause.cause


def test_a_code_has_a_meaning_in_any_language() -> None:
    diagnosis = cause_in([*RAISED, "OSError: [WinError 127] 找不到指定的程序。"])
    known = load_codes()["winerror"]["127"]
    assert known.means in diagnosis.cause.cause
    assert diagnosis.cause.hint == known.hint
    assert cause_of("OSError: [WinError 127] x") == ("winerror", "likely")
    assert cause_of("OSError: [WinError 64999] x") == ("python-exception", "possible")


@pytest.mark.parametrize("table", load_codes())
def test_every_table_of_codes_is_used(table: str) -> None:
    assert table in {signature.codes for signature in CATALOGUE.signatures}


def test_an_error_that_the_build_survived_is_not_the_cause() -> None:
    probe = "LINK : fatal error LNK1181: cannot open input file 'aio.lib'"
    assert cause_of(probe, *RAISED, "ops.OddError: why")[0] == "python-exception"
    assert cause_of(probe, "error: command 'link.exe' failed with exit code 1181")[0] == "msvc-code"
    real = failed("a", "a.cpp(1): error C2065: 'x': undeclared identifier")
    diagnosis = cause_in([probe, "ValueError: survived", *real, *FLASH_ATTN_END])
    assert diagnosis.cause.line == 5
    assert diagnosis.cause.command.endswith(f"-o {UNIT}/a.obj")


def test_what_ended_the_job_is_not_what_failed() -> None:
    end = "##[error]The operation was canceled."
    diagnosis = cause_in([*failed("a", "x(1): catastrophic error : out of memory"), end])
    assert diagnosis.signature.id == "oom-edg"
    assert diagnosis.ended is not None
    assert diagnosis.ended.signature.id == "cancelled-untimed"
    alone = cause_in([end])
    assert alone.ended is None


@pytest.mark.parametrize(
    ("last", "signature"), [("10:05:02", "cancelled"), ("16:01:00", "cancelled-late")]
)
def test_the_time_of_a_cancelled_job_tells_why(last: str, signature: str) -> None:
    begin = "2025-11-02T10:02:11.100Z ##[group]Run wcw build"
    cancelled = f"2025-11-02T{last}.7000000Z ##[error]The operation was canceled."
    assert cause_of(begin, cancelled) == (signature, "likely")
    assert cause_of("2025-99-99T10:02:11.1Z x", cancelled)[0] == "cancelled-untimed"


def test_scope_lowers_confidence_or_rules_out() -> None:
    line = "a.cpp(1): error C2719: 'x': formal parameter with requested alignment of 128 won't be"
    assert cause_of(line) == ("align-c2719", "likely")
    assert cause_of(r"C:\cuda\v13.1\bin\nvcc -c a.cu", line) == ("align-c2719", "certain")
    assert cause_of(r"C:\cuda\v12.4\bin\nvcc -c a.cu", line)[0] == "compile-error"
    key, own, other = (
        "KeyError: 'Windows'",
        "Building wheel for flash_attn",
        "Building wheel for mypackage",
    )
    assert cause_of(key) == ("fa3-keyerror", "likely")
    assert cause_of(own, key) == ("fa3-keyerror", "certain")
    assert cause_of(other, key) == ("python-exception", "possible")


def test_unit_with_a_blank_in_its_path_is_whole() -> None:
    diagnosis = cause_in(["FAILED: [code=1] D:/my code/a.obj", "nvcc a.cu", "a.cu: error: odd"])
    assert (diagnosis.cause.unit, diagnosis.cause.command) == ("D:/my code/a.obj", "nvcc a.cu")


def test_prefixes_of_ci_do_not_hide_an_exception() -> None:
    for prefix in ("2025-11-02T10:02:11.1000000Z ", "#12 34.567 "):
        assert cause_of(f"{prefix}ValueError: odd")[0] == "python-exception"


SECRETS = """\
C:\\Users\\Jane.Doe\\src\\a.cu and again Jane.Doe
/home/jdoe/x.cu
D:\\Acme Rockets\\engine\\a.cu
https://jane:hunter2@git.acme.example/x.git and https://pypi.acme.example/simple
\\\\ACMESERVER\\share\\x
mail jane@acme.example, 10.20.30.40
export HF_TOKEN=abcdefgh; password: "hunter2"
Authorization: Bearer hunter2
ghp_0123456789abcdefghijABCDEFGHIJ012345
"""


def test_text_for_an_issue_is_anonymous() -> None:
    text = anonymize_text(SECRETS)
    hidden = [
        "Jane",
        "Doe",
        "jdoe",
        "Acme",
        "Rockets",
        "ACME",
        "acme",
        "hunter2",
        "abcdefgh",
        "10.20",
        "ghp_",
    ]
    assert not [word for word in hidden if word in text], text
    kept = r"a.cu C:\cuda\v12.4\bin\nvcc https://github.com/a/b error C2065: 'x' LNK2001"
    assert anonymize_text(kept) == kept
    diagnosis = diagnose(["C:\\Users\\jane\\a.cpp(1): error C2065: 'x'"])
    said = format_issue(diagnosis, [diagnosis.cause.text if diagnosis else ""])
    assert "msvc-code (likely), line 1" in said
    assert "jane" not in said


# -- encodings and shapes of logs -----------------------------------------------------------------

CAUSE = "flash_api.cpp : fatal error C1083: für 'Straße é': Invalid argument"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"]
)
def test_encodings(encoding: str, end: str) -> None:
    lines = [*healthy(700), *failed("a", CAUSE), *healthy(700)]
    diagnosis = cause_in(encoded(lines, encoding, end))
    assert found(diagnosis)[0] == ("longpath-cl", lines.index(CAUSE) + 1)
    assert diagnosis.lines == len(lines)
    assert diagnosis.cause.text == CAUSE


def test_big_endian_with_mark_and_encodings_that_change() -> None:
    log = io.BytesIO(b"\xfe\xff" + f"好\n{CAUSE}\n".encode("utf-16-be"))
    assert found(diagnose(log))[0] == ("longpath-cl", 2)
    log = io.BytesIO(b"ordinary\n" + f"{CAUSE}\n".encode("utf-16-le") + b"ordinary\n")
    assert found(diagnose(log))[0] == ("longpath-cl", 2)


def test_mixed_line_ends_and_colours() -> None:
    log = io.BytesIO(
        b"one\r\ntwo\nbar 1%\rbar 2%\r\x1b[31mfatal \x1b[1merror C1060\x1b[0m: no heap\rbar 3%\r\n"
        b"KeyError: 'Windows'"
    )
    diagnosis = cause_in(log)
    assert found(diagnosis)[0] == ("oom-c1060", 3)
    assert ("fa3-keyerror", 4) in found(diagnosis)
    assert diagnosis.cause.text == "fatal error C1060: no heap"
    assert diagnosis.lines == 4


@given(cut=st.integers(1, 400), pad=st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_blocks_may_end_anywhere(cut: int, pad: int) -> None:
    """A stream that gives a few bytes at a time shows the same as one that gives all."""

    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(cut)

    text = "\r\n".join(
        ["x" * pad, "\x1b[31mFAILED: a.obj\x1b[0m", CAUSE, "below", "KeyError: 'Windows'"]
    )
    raw = text.encode("utf-16")
    assert diagnose(Dribble(raw)) == diagnose(io.BytesIO(raw))
    assert diagnose(Dribble(text.encode())) == diagnose(io.BytesIO(text.encode()))


def test_cause_across_the_borders_of_blocks() -> None:
    for pad in range((1 << 18) - 100, (1 << 18) + 20, 7):
        for fill in (b"x", b"\n"):
            diagnosis = cause_in(io.BytesIO(fill * pad + b"\n" + CAUSE.encode() + b"\nbelow\n"))
            assert diagnosis.cause.below == ("below",)
            assert diagnosis.cause.line == (2 if fill == b"x" else pad + 2)


@pytest.mark.slow
def test_needle_across_the_borders_of_a_search() -> None:
    """A block is searched up to where too little follows; what begins there must not be lost."""
    after = b"\n" + b"below\n" * 60_000
    for pad in range((1 << 18) - (1 << 13) - 60, (1 << 18) - (1 << 13) + 5):
        assert found(diagnose(io.BytesIO(b"x" * pad + b"\n" + CAUSE.encode() + after))) == [
            ("longpath-cl", 2),
            ("compile-error", 2),
            ("msvc-code", 2),
        ]


def test_needle_across_the_cut_of_a_long_line() -> None:
    for gap in range(2030, 2060):
        line = "nearly: error C9 ".ljust(gap) + "fatal error C1060: no heap" + " " * 3000
        assert found(diagnose([line]))[0] == ("oom-c1060", 1)


@given(
    before=st.text("aZ0 \t\\/\n'", max_size=9),
    needle=st.sampled_from([*CATALOGUE.by_needle]),
    after=st.text("eR9 \r./[", max_size=9),
)
def test_no_needle_is_ruled_out_where_it_stands(before: str, needle: bytes, after: str) -> None:
    assert needle in NEEDLES.within(before.encode() + needle + after.encode())


def test_needles_of_other_words_are_ruled_out() -> None:
    """Otherwise each is searched for in each block."""
    command = f"{NVCC} -Xcudafe --display_error_number -I{UNIT}".encode()
    assert len(NEEDLES.within(command)) < len(CATALOGUE.by_needle) / 20


def test_line_that_a_progress_bar_repeats_is_one_finding() -> None:
    log = b"LNK1: 1%\rKeyError: 'Windows'\rKeyError: 'Windows'\rKeyError: 'Windows'\n"
    assert found(diagnose(io.BytesIO(log))) == [("fa3-keyerror", 1), ("python-exception", 1)]


def test_mark_of_utf_8_is_no_part_of_the_text() -> None:
    diagnosis = cause_in(encoded([CAUSE], "utf-8-sig"))
    assert diagnosis.cause.text == CAUSE


def test_lines_and_bytes_show_the_same() -> None:
    lines = [*healthy(300), *failed("a", CAUSE), *FLASH_ATTN_END]
    assert diagnose(lines) == diagnose(encoded(lines))
    assert diagnose(line + "\n" for line in lines) == diagnose(encoded(lines))


def test_lines_above_are_counted() -> None:
    diagnosis = cause_in(["good", CAUSE], above=40)
    assert found(diagnosis)[0] == ("longpath-cl", 42)
    assert diagnosis.lines == 42


def test_what_uv_says_last_is_not_the_cause() -> None:
    said = ["error: Failed to build `C:\\b\\x`", "", "  cause: Call to x failed (exit code: 1)"]
    assert found(diagnose(["a.cu(1): error: odd", *said]))[0] == ("compile-error", 1)
    alone = cause_in(said)
    assert (alone.signature.id, alone.cause.below) == ("pip-wrapper", (said[2],))


def test_our_own_words_in_a_log_are_no_finding() -> None:
    """What is said of healing goes into the log, which may be diagnosed again."""
    for signature in (s for s in CATALOGUE.signatures if s.heals):
        ours = diagnose([f"--- retry 1 of 1 with x (line 1, {signature.id}: "
                         f"{signature.cause} ---"])  # fmt: skip
        assert ours is None, signature.id


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_text(CAUSE)
    assert found(diagnose_file(path))[0] == ("longpath-cl", 1)
    with pytest.raises(ConfigError, match=r"gone\.log"):
        diagnose_file(tmp_path / "gone.log")


# -- hostile logs ---------------------------------------------------------------------------------


def hostile(signature: Signature, size: int) -> list[str]:
    """Lines that begin as the regex wants it again and again, and never end so."""
    sample = signature.sample.splitlines()[0]
    match = signature.pattern.search(sample)
    part = match[0] if match else signature.needles[0]
    seeds = (part[:-1], part[: len(part) // 2], signature.needles[0])
    return [(seed * (size // len(seed) + 1))[:size] for seed in seeds]


#: Looks 400 characters ahead from each one, as a signature with a long gap does.
GAP = re.compile("a.{0,400}b")


def searched(pattern: re.Pattern[str], line: str) -> float:
    return cost(lambda: pattern.search(line))


@pytest.mark.slow
@EVERY
def test_no_regex_is_slow_on_a_long_line(signature: Signature) -> None:
    """Sixteen times the line is some sixteen times the work; it would be 256 with its square."""
    most = 3 * 16 * searched(GAP, "a" * (1 << 12))
    for short, long in zip(hostile(signature, 1 << 12), hostile(signature, 1 << 16), strict=True):
        took = searched(signature.pattern, long)
        assert took < min(most, 64 * searched(signature.pattern, short)), long[:60]


def test_long_lines_cost_no_more_than_short_ones() -> None:
    long = [hostile(CATALOGUE.by_id[name], 1 << 15)[0] for name in ("wheel-404", "longpath-cl")]
    short = [line[at : at + 200] for line in long for at in range(0, len(line), 200)]
    assert cost(lambda: diagnose(encoded(long))) < 8 * cost(lambda: diagnose(encoded(short)))


def test_cause_within_a_long_line_is_found_and_cut() -> None:
    line = "a" * 3_000_000 + " fatal error C1060: no heap " + "b" * 3_000_000
    diagnosis = cause_in([line])
    assert found(diagnosis)[0] == ("oom-c1060", 1)
    assert "error C1060" in diagnosis.cause.text
    assert len(diagnosis.cause.text) < 500


def test_what_is_kept_is_bounded() -> None:
    lines = [s.sample.splitlines()[0] for s in CATALOGUE.signatures] * 300
    diagnosis = cause_in(lines)
    assert len(diagnosis.others) < 5 * len(CATALOGUE.signatures)
    for earlier, later in pairwise(diagnosis.others):
        assert (earlier.line, earlier.column) <= (later.line, later.column)
    assert diagnosis.lines == len(lines)


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    class Endless(io.RawIOBase):
        left = 160

        def read(self, size: int = -1, /) -> bytes:
            self.left -= 1
            return b"FAILED: \x1b error C1083: ".rjust(size) if self.left > 0 else b""

    tracemalloc.start()
    try:
        diagnose(Endless())  # type: ignore[arg-type] # read() is all that is used
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@given(raw=st.binary(max_size=600), at=st.integers(0, 600))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_log(raw: bytes, at: int) -> None:
    log = raw[:at] + b"\nKeyError: 'Windows'\n" + raw[at:]
    diagnosis = diagnose(io.BytesIO(log))
    if not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        assert "fa3-keyerror" in [name for name, _ in found(diagnosis)]


def test_what_a_host_said_cannot_reach_the_terminal() -> None:
    evil = "\x1b]0;title\x07 [red]fatal error C1060: \x9b2J \u202e ::error::x ##[error]y"
    diagnosis = cause_in([evil, "\x1b[2J\x07below"])
    console = Console(record=True, file=io.StringIO(), width=200, color_system=None)
    console.print(reports.render_diagnosis(diagnosis, "build.log"))
    shown = console.export_text()
    assert "[red]fatal error C1060" in shown  # no markup
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_report_tells_all(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*FLASH_ATTN_HEAD, *failed("a", "x(1): catastrophic error : out of memory", "below")]
    diagnosis = cause_in([*lines, *FLASH_ATTN_END])
    console = Console(record=True, file=io.StringIO(), width=300, color_system=None)
    console.print(reports.render_diagnosis(diagnosis, "build.log"))
    shown = console.export_text()
    signature = diagnosis.signature
    wanted = [signature.cause, signature.hint, *signature.evidence, "build.log, line 7", "below",
              f"unit {UNIT}/a.obj", "automatically", "ninja-wrapper"]  # fmt: skip
    assert not [text for text in wanted if text not in shown]
    kept = reports.diagnosis_result(diagnosis)
    assert (kept.id, kept.is_cause, kept.line) == ("oom-edg", True, 7)
    assert kept.unit == f"{UNIT}/a.obj"
    assert (kept.cause, kept.hint, kept.links) == (
        signature.cause,
        signature.hint,
        signature.evidence,
    )
    assert kept.summary.startswith("line 7: cudafe++")
    unknown = cause_in(FLASH_ATTN_END)
    assert not reports.diagnosis_result(unknown).is_cause
    assert "no known cause" in reports.diagnosis_result(unknown).summary
    monkeypatch.setattr(github, "in_ci", True)
    console.print(reports.render_diagnosis(diagnose(["::error:: fatal error C1060: x"]), "x.log"))
    assert "::error" not in console.export_text()
    console.print(reports.render_diagnosis(None, "x.log"))
    assert "found in x.log" in console.export_text()
