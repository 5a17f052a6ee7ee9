"""Device code as the audit counts it, and as NVIDIA's own Windows program lists it, under Wine.

``AUDIT_CUOBJDUMP`` names a cuobjdump.exe (PyPI: nvidia-cuda-cuobjdump), ``AUDIT_WHEELS`` a
directory of wheels. That of CUDA 13.5 ends with "Invalid ELF" on some code of CUDA 12.0 and 12.1,
and of what was linked (-rdc=true) it lists the link alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.hosts.sandbox.wine import find_wine
from pipelines.wheels.fatbin import inventory
from pipelines.wheels.traces import read_traces

PROGRAM, WHEELS = os.environ.get("AUDIT_CUOBJDUMP"), os.environ.get("AUDIT_WHEELS")


def listed(flag: str, path: Path, prefix: Path) -> tuple[Counter[str], bool]:
    """Architectures by how often they are listed, and whether the program came to the end."""
    done = subprocess.run(
        [*find_wine().command, str(PROGRAM), flag, "Z:" + str(path).replace("/", "\\")],
        env={**os.environ, "WINEPREFIX": str(prefix), "WINEDEBUG": "-all"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    found = re.findall(r"\.sm_(\d+a?)f?\.(?:cubin|ptx)", done.stdout)
    return Counter(found), "fatal" not in said


def binaries(folder: Path) -> Iterator[Path]:
    for path in sorted(Path(str(WHEELS)).rglob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith((".pyd", ".dll")):
                    yield Path(archive.extract(name, folder / path.stem))


@pytest.mark.skipif(not (PROGRAM and WHEELS), reason="AUDIT_CUOBJDUMP and AUDIT_WHEELS name none")
def test_the_same_is_found(tmp_path: Path) -> None:
    same, cut = [], []
    for path in binaries(tmp_path):
        data = path.read_bytes()
        start, end = read_traces(data).relocatable
        units = [one for one in inventory(data).containers if not start <= one.offset < end]
        if not units:
            continue
        for flag, ours in (
            ("--list-elf", Counter(arch.rstrip("f") for one in units for arch in one.sass)),
            ("--list-ptx", Counter(arch.rstrip("f") for one in units for arch in one.ptx)),
        ):
            theirs, whole = listed(flag, path, tmp_path / "prefix")
            if whole:
                assert theirs == ours, (path.name, flag)
                same.append(path.name)
            else:
                assert theirs <= ours, (path.name, flag)
                cut.append(path.name)
    assert same
    print(f"{len(same)} lists are the same, {len(cut)} end early: {sorted({*cut})}")
