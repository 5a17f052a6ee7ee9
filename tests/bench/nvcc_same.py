"""``nvcc_same.py PREFIX [COUNT [AT_ONCE]]``: whether nvcc makes the same bytes each time.

Compiles the four kernel files of smoke-attention in turn, COUNT compilations in all (200), as its
reproducible build does, in the Windows of PREFIX, which nothing else may run. Every file on the way
is kept and compared: preprocessed source, PTX, machine code, object. Each compilation has a
directory whose name is of another length and an environment of another size, by which memory lies
elsewhere; ``--random`` lets Linux place it at random as well. Prints one JSON object; what differs
is left in ``C:\\s\\odd``, beside what is usual. ``--append FLAGS`` replaces what the profile tells
nvcc: ``--append "--objdir-as-tempdir --frandom-seed=reproducible"`` shows what it is told for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pipelines
from pipelines.core.files import sha256_of
from pipelines.hosts.sandbox.wine import Prefix, find_wine
from pipelines.recipe.reproducible import reproducible_environment

SOURCE = Path(pipelines.__file__).parent / "examples/smoke_attention/src"
UNITS = sorted(path.stem for path in SOURCE.glob("*.cu"))
VARIABLES = {
    "TMP": r"C:\t",
    "TEMP": r"C:\t",
    "SOURCE_DATE_EPOCH": "1704067200",
    **reproducible_environment({}, "stand-in", "13.0", {}),
}
NVCC = (
    *("nvcc", "-keep", "-O3", "-std=c++14", "--use-local-env", "-Xcompiler", "/MD"),
    *("-gencode", "arch=compute_80,code=sm_80"),
    *("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    *("-gencode", "arch=compute_120,code=sm_120"),
)


def compiled(prefix: Prefix, work: Path, number: int) -> tuple[Path, dict[str, str], float]:
    """The directory, the sha256 of every file that nvcc has left, seconds; none if it failed."""
    unit = UNITS[number % len(UNITS)]
    room = work / f"{number:04}{'x' * (number * 7 % 61)}"
    (room / "o").mkdir(parents=True)
    (room / "run.bat").write_text(
        "@call C:\\VS\\VC\\Auxiliary\\Build\\vcvarsall.bat x64\r\n"
        "@set PATH=C:\\cuda\\13.0\\bin;%PATH%\r\n"
        f"@{' '.join(NVCC)} -c C:\\s\\src\\{unit}.cu -o o\\{unit}.obj\r\n@exit %ERRORLEVEL%\r\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [*prefix.wine.command, "cmd", "/c", "run.bat"],
        cwd=room,
        env=prefix.environment({**VARIABLES, "PADDING": "x" * (number * 37 % 4001)}),
        input=b"",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        print(f"{room.name}: {done.stdout.decode('utf-8', 'replace')}", file=sys.stderr, flush=True)
        return room, {}, seconds
    made = (path for path in (room / "o").iterdir() if path.suffix != ".res")  # has the directory
    return room, {path.name: sha256_of(path) for path in made}, seconds


def main(prefix: Prefix, count: int, at_once: int) -> dict[str, object]:
    """All of them, and which files have had more than one result."""
    work = prefix.drive / "s"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(SOURCE, work / "src")
    results: defaultdict[str, Counter[str]] = defaultdict(Counter)
    failed, taken = 0, []
    prefix.boot()
    try:
        with ThreadPoolExecutor(at_once) as pool:
            numbers = range(count)
            for room, found, seconds in pool.map(lambda one: compiled(prefix, work, one), numbers):
                taken.append(seconds)
                failed += not found
                for name, sha256 in found.items():
                    results[name][sha256] += 1
                odd = {name for name in found if results[name][found[name]] == 1}
                if odd:  # the first of its kind as well
                    shutil.copytree(room / "o", work / "odd" / room.name[:4])
                if odd and len(odd) < len(found):
                    print(f"{room.name}: {', '.join(sorted(odd))}", file=sys.stderr, flush=True)
                shutil.rmtree(room)
    finally:
        prefix.halt()
    return {
        "compilations": count,
        "failed": failed,
        "files compared": sum(counted.total() for counted in results.values()),
        "several results": {
            name: counted for name, counted in sorted(results.items()) if len(counted) > 1
        },
        "median seconds": round(sorted(taken)[count // 2], 2),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("at_once", type=int, nargs="?", default=1)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--append", default=VARIABLES["NVCC_APPEND_FLAGS"])
    asked = parser.parse_args()
    VARIABLES["NVCC_APPEND_FLAGS"] = asked.append
    wine = replace(find_wine(), aside=()) if asked.random else find_wine()
    print(json.dumps(main(Prefix(asked.prefix.resolve(), wine), asked.count, asked.at_once)))
