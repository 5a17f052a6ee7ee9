"""Runs the kernels of flash-attn-stable by pointers and compares them bit for bit with another's.

``python pointers.py LIBRARY NUMBERS.json [--dims 64,128] [--only "64 fp16"]`` needs no package:
with Linux' Python and library, Windows' under Wine with the GPU bridge, or on Windows. Writes for
each case the sha256 of all that the kernels wrote, and 256 values of each array; ``--against
OTHER.json`` compares with another's. Exits with 1 where a case is missing, failed or differs. The
recipe's suite compares with float64.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "pipelines/smoke/flash_attn"))
import flash_pointers as fp  # noqa: E402  of the recipe's suite

SHOWN = 256  # values of each array, evenly spread


def numbers(name: str, data: bytes, bf16: bool) -> list[float]:
    """Some of an array."""
    if name == "state":
        return [*map(float, struct.unpack("<2Q", data))]
    size = 4 if name in ("lse", "d_sum") else 2
    step = max(len(data) // size // SHOWN, 1) * size
    words = [data[at : at + size] for at in range(0, len(data), step)]
    if size == 2 and bf16:
        words = [b"\0\0" + word for word in words]
    kind = "<e" if size == 2 and not bf16 else "<f"
    return [struct.unpack(kind, word)[0] for word in words]


def differences(mine: dict[str, Any], others: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Cases whose bits differ, and of these the ones that no rounding explains."""
    bits, wrong = [], []
    for name, arrays in mine.items():
        for array, one in arrays.items():
            other = others.get(name, {}).get(array)
            if other and one["sha256"] == other["sha256"]:
                continue
            bits.append(f"{name}: {array}")
            most = max((abs(x) for x in other["some"]), default=0.0) if other else 0.0
            close = other and all(
                abs(a - b) <= 2**-7 * most for a, b in zip(one["some"], other["some"], strict=True)
            )
            if not close:
                wrong.append(f"{name}: {array}")
    return bits, wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("numbers", type=Path)
    parser.add_argument("--dims", default=",".join(map(str, fp.DIMS)))
    parser.add_argument("--only", default="", help="what a case's name begins with")
    parser.add_argument("--against", type=Path)
    asked = parser.parse_args()
    library, gpu = fp.Library(asked.library), fp.Gpu()
    found, failed = {}, []
    for name, one in fp.cases([int(dim) for dim in asked.dims.split(",")]):
        if not name.startswith(asked.only):
            continue
        bf16 = one["bf16"]
        try:
            arrays = fp.run(library, gpu, one)
        except RuntimeError as problem:
            failed.append(f"{name}: {problem}")
            continue
        found[name] = {
            array: {"sha256": hashlib.sha256(data).hexdigest(), "some": numbers(array, data, bf16)}
            for array, data in arrays.items()
        }
    asked.numbers.write_text(json.dumps(found))
    capability = f"{library.device.major}.{library.device.minor}"
    summary = {"capability": capability, "cases": len(found), "failed": failed}
    if asked.against:
        bits, wrong = differences(found, json.loads(asked.against.read_text()))
        summary |= {"arrays": sum(map(len, found.values())), "other bits": bits, "wrong": wrong}
        failed += wrong
    sys.stdout.write(json.dumps(summary) + "\n")
    return bool(failed or not found)


if __name__ == "__main__":
    sys.exit(main())
