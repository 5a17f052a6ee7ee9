"""What a host builds in the campaign: units that are kept, then a wheel made of source and units.

It leaves evidence of what must never happen: ``twice`` when two of it run at once, and a line in
``compiled`` for each time that a unit is begun and finished. Of what several hosts may build, the
order names one place for that of all of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from pathlib import Path


def main(there: Path) -> None:
    order = json.loads((there / "order.json").read_text())
    place = Path(order.get("place", there))
    lock = (place / "only-one").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        (place / "twice").touch()
        raise SystemExit("another one of me runs") from None
    source = (there / "source").read_bytes()
    print("source", hashlib.sha256(source).hexdigest(), flush=True)
    for unit in range(order["units"]):
        kept = there / f"unit-{unit}"
        if not kept.exists():
            time.sleep(order["seconds"])
            part = kept.with_suffix(".part")
            part.write_bytes(hashlib.shake_256(source + bytes([unit])).digest(order["size"]))
            with (there / "compiled").open("a") as log:
                part.replace(kept)
                os.write(log.fileno(), f"{unit}\n".encode())
        print(f"[{unit + 1}/{order['units']}]", flush=True)
    part = there / "wheel.part"
    part.write_bytes(b"".join((there / f"unit-{u}").read_bytes() for u in range(order["units"])))
    part.replace(there / "wheel")
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
