"""Types Ctrl-C as a console of Windows does, for every process in it, once a program says a word.

ctrl_c.py WORD PROGRAM...    prints [exit code, what it said from then on, seconds until it ended]
"""

import ctypes
import json
import subprocess
import sys
import time

kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
kernel.FreeConsole()
kernel.AllocConsole()
process = subprocess.Popen(
    sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
)
assert process.stdout is not None
if not any(sys.argv[1].encode() in line for line in process.stdout):
    sys.exit(f"it never said {sys.argv[1]}")
kind = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)  # type: ignore[attr-defined, unused-ignore]
mine = kind(lambda event: 1)
kernel.SetConsoleCtrlHandler(mine, 1)
begun = time.monotonic()
kernel.GenerateConsoleCtrlEvent(0, 0)
said = process.stdout.read().decode()
print(json.dumps([process.wait(), said, time.monotonic() - begun]))
