"""Runs in each CPython of a host: it can build extensions, and it writes long paths."""

import os
import pathlib
import shutil
import sys
import sysconfig
import uuid

major, minor = sys.version_info[:2]
header = pathlib.Path(sysconfig.get_path("include")) / "Python.h"
library = pathlib.Path(sys.base_prefix) / "libs" / f"python{major}{minor}.lib"
for needed in (header, library):
    if not needed.is_file():
        sys.exit(f"no {needed}")

top = pathlib.Path(os.environ["TEMP"]) / uuid.uuid4().hex
deep = top.joinpath(*["d" * 60] * 5)
try:
    deep.mkdir(parents=True)
    (deep / "probe").write_text("probe", encoding="ascii")
    if (deep / "probe").read_text(encoding="ascii") != "probe":
        sys.exit(f"{deep} does not hold what was written")
finally:
    shutil.rmtree(str(top), ignore_errors=True)

print(f"ok {major}.{minor} {len(str(deep))}")
