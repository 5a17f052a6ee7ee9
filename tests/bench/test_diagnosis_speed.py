"""How fast a log is diagnosed, compared with the same regexes one by one over the whole text."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_figures import show

from pipelines.diagnosis import Diagnosis, diagnose_file, load_catalogue

SIZE = 100_000_000
PEER_SIZE = 8_000_000  # the peer takes minutes for all of it
FLAGS = " ".join(
    f"-Xcudafe --diag_suppress=d{n} -IC:\\b\\0123456789ab\\src\\inc{n}" for n in range(12)
)


def log() -> Iterator[str]:
    """Lines of a verbose build of flash-attn: commands, and warnings of all compilers."""
    unit = 0
    while True:
        unit += 1
        name = f"flash_{('fwd', 'bwd')[unit % 2]}_hdim{32 * (unit % 8)}_bf16_sm80_{unit}"
        yield rf"[{unit % 73}/73] C:\cuda\13.0\bin\nvcc -c {FLAGS} -o C:\b\src\build\{name}.obj"
        yield "cl : Command line warning D9025 : overriding '/D__CUDA_NO_HALF_OPERATORS__'"
        yield rf"C:\b\torch\c10/util/irange.h({unit}): warning #186-D: pointless comparison"
        yield f'Remark: The warnings can be suppressed with "-diag-suppress <number>" {unit}'
        yield f"ptxas info    : Used {unit % 255} registers, 0 bytes spill stores"
        yield f"{name}.cu"
        yield f"tmpxft_{unit:08x}_00000000-7_{name}.compute_80.cudafe1.cpp"


TORCH = r"C:\Users\ci\Python\3.11.9\x64\Lib\site-packages\torch"
CUDA = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.8"
VC = r"C:\Program Files\Microsoft Visual Studio\2022\Enterprise\VC\Tools\MSVC\14.38.33130"
COMMON = " ".join(
    [
        "-std=c++17 --use-local-env -Xcompiler /MD -Xcompiler /wd4819 -Xcompiler /EHsc",
        "-Xcudafe --diag_suppress=base_class_has_different_dll_interface",
        "-Xcudafe --diag_suppress=dll_interface_conflict_none_assumed",
        rf'-I{TORCH}\include -I{TORCH}\include\torch\csrc\api\include "-I{CUDA}\include"',
        rf'"-I{VC}\include" "-I{VC}\ATLMFC\include" -DTORCH_EXTENSION_NAME=flash_attn_2_cuda',
        "-D__CUDA_NO_HALF_OPERATORS__ -D__CUDA_NO_BFLOAT16_CONVERSIONS__ --use_fast_math",
        *(f"-gencode arch=compute_{a},code=sm_{a}" for a in (80, 86, 89, 90, 100, 120)),
    ]
)


def commands() -> Iterator[str]:
    """Lines of ninja -v and nvcc --verbose: nearly all are commands of 1 to 2 kB."""
    unit = 0
    while True:
        unit += 1
        source = rf"C:\Users\ci\AppData\Local\Temp\pip-install-k2p\flash-attn\csrc\src\fwd_{unit}"
        yield rf'[{unit % 293}/293] "{CUDA}\bin\nvcc" {COMMON} -c {source}.cu -o {source}.obj'
        temp = rf"C:\Users\ci\AppData\Local\Temp\tmpxft_{unit:08x}_00000000"
        yield (
            rf'#$ cicc --microsoft_version=1938 --compiler_bindir "{VC}\bin\Hostx64\x64" '
            rf'--display_error_number --orig_src_path_name "{source}.cu" -arch compute_90 -ftz=1 '
            rf'--module_id_file_name "{temp}-4.module_id" --gen_c_file_name "{temp}-6.c"'
        )
        if unit % 40 == 0:
            yield rf"{source}.cu({unit}): warning #177-D: variable was declared but never used"


@pytest.fixture(scope="module", params=[log, commands])
def path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """100 MB; the cause in the middle, wrappers at the end."""
    made = tmp_path_factory.mktemp("log") / f"{request.param.__name__}.log"
    with made.open("w", encoding="utf-8", newline="\r\n") as file:
        size, told = 0, False
        for line in request.param():
            size += file.write(line + "\n")
            if size > SIZE // 2 and not told:
                file.write("FAILED: a.obj\na.hpp(478): catastrophic error : out of memory\n")
                told = True
            if size > SIZE:
                break
        file.write("ninja: build stopped: subcommand failed.\n")
    return made


def timed(function: Callable[[], Diagnosis | None]) -> tuple[Diagnosis | None, float, float]:
    """What it returns, seconds by the clock and of processor; the best of three."""
    best = None
    for _ in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        told = function()
        took = (time.perf_counter() - wall, time.process_time() - processor)
        best = min(best or took, took)
    assert best
    return told, *best


def test_log_of_100_mb(path: Path) -> None:
    megabytes = path.stat().st_size / 1e6
    diagnosis, wall, processor = timed(lambda: diagnose_file(path))
    assert diagnosis is not None
    assert diagnosis.signature.id == "oom-edg"
    what = f"diagnosis of {megabytes:.0f} MB, {path.name}"
    show(f"{what}, by the clock", f"{megabytes / wall:.0f} MB/s", "30 MB/s")
    show("the same, of processor time", f"{megabytes / processor:.0f} MB/s", "30 MB/s")
    tracemalloc.start()
    diagnose_file(path)
    show("peak memory of it", f"{tracemalloc.get_traced_memory()[1] / 2**20:.1f} MiB", "bounded")
    tracemalloc.stop()

    text = path.read_text("utf-8")[:PEER_SIZE]
    patterns = [signature.pattern for signature in load_catalogue().signatures]
    began = time.process_time()
    for pattern in patterns:
        pattern.search(text)
    peer = PEER_SIZE / 1e6 / (time.process_time() - began)
    show("the regexes one by one over the text", f"{peer:.2f} MB/s", "(peer)")
    show("ratio to the peer", f"{megabytes / processor / peer:.0f} x", "")
