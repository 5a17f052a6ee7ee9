"""``nvcc_ends.py PREFIX [COUNT]``: how often nvcc ends without a word in a provisioned sandbox.

Compiles a small kernel for two architectures COUNT times (200), two at a time as a build does, in
the Windows of PREFIX, which nothing else may run. Prints one JSON object: how many ended with which
code, how many of the failed said nothing, seconds for each.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.hosts.sandbox.wine import Prefix

KERNEL = "__global__ void scale(float *x, float s) { x[threadIdx.x] *= s; }\n"
NVCC = (
    *("nvcc", "--use-local-env", "-Xcompiler", "/MD", "-c", "kernel.cu"),
    *("-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"),
)
#: What Wine says by itself where there is no font library, once for each program.
_OF_WINE = re.compile(r"Wine cannot find the FreeType.*?www\.freetype\.org", re.DOTALL)


def compiled(prefix: Prefix, work: Path, number: int) -> tuple[int, bool, float]:
    """Exit code, whether anything was said besides the file's name, seconds."""
    script = work / f"{number}.bat"
    script.write_text(
        "@call C:\\VS\\VC\\Auxiliary\\Build\\vcvarsall.bat x64\r\n"
        "@set PATH=C:\\cuda\\13.0\\bin;%PATH%\r\n"
        f"@{' '.join(NVCC)} -o {number}.obj\r\n@exit %ERRORLEVEL%\r\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [*prefix.wine.command, "cmd", "/c", script.name],
        cwd=work,
        env=prefix.environment({"TMP": "C:\\t", "TEMP": "C:\\t"}),
        input=b"",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    said = _OF_WINE.sub("", done.stdout.decode("utf-8", "replace")).replace("kernel.cu", "").strip()
    made = work / f"{number}.obj"
    code = done.returncode if done.returncode or made.is_file() else -1
    if code:
        print(f"{number} ended with {code}: {said or 'nothing said'}", file=sys.stderr, flush=True)
    return code, bool(said), time.monotonic() - began


def main(prefix: Prefix, count: int) -> dict[str, object]:
    """All of them, and what became of them."""
    work = prefix.drive / "nvcc-ends"
    work.mkdir(exist_ok=True)
    for old in work.iterdir():
        old.unlink()
    (work / "kernel.cu").write_text(KERNEL)
    prefix.boot()
    try:
        with ThreadPoolExecutor(2) as pool:
            all_ = list(pool.map(lambda number: compiled(prefix, work, number), range(count)))
    finally:
        prefix.halt()
    seconds = sorted(one[2] for one in all_)
    return {
        "count": count,
        "ended with": dict(Counter(one[0] for one in all_)),
        "failed without a word": sum(1 for code, said, _ in all_ if code and not said),
        "median seconds": round(seconds[count // 2], 2),
    }


if __name__ == "__main__":
    print(json.dumps(main(Prefix(Path(sys.argv[1]).resolve()), int((sys.argv[2:] or ["200"])[0]))))
