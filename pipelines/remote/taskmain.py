"""The program of a scheduled task: runs ``command.json``, writes ``output`` and ``result.json``.

A separate program, on the host's disk while the task exists: it must not import other modules.
``result.json`` is written last, by rename. A file ``stop`` ends the program and its children. The
date of ``alive`` changes about once a second while this runs.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time


def main(folder: pathlib.Path) -> None:
    """Run the command and write the result."""
    command = json.loads((folder / "command.json").read_text("utf-8"))
    windows = sys.platform == "win32"
    if sys.platform == "win32":  # as awake.begin: an installer's dialog would wait forever
        ctypes.windll.kernel32.SetErrorMode(0x8003)
        ctypes.windll.kernel32.SetThreadExecutionState(0x80000001)
    (folder / "alive").touch()
    with (folder / "output").open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=not windows,
            )
        except OSError as error:
            output.write(str(error).encode())
            code = 127
        else:
            passes = 0
            while process.poll() is None:
                passes += 1
                if passes % 10 == 0:
                    (folder / "alive").touch()
                if (folder / "stop").exists():
                    end(process, windows=windows)
                time.sleep(0.1)
            code = process.returncode
    part = folder / "result.part"
    part.write_text(json.dumps({"exit": code}), "utf-8")
    for left in range(100 if windows else 0, -1, -1):
        try:
            os.replace(part, folder / "result.json")  # noqa: PTH105 - replaces on Windows too
            break
        except PermissionError:  # as files.replace: a scanner holds the new file
            if not left:
                raise
            time.sleep(0.05)


def end(process: subprocess.Popen[bytes], *, windows: bool) -> None:
    """End the program and all its child processes."""
    if windows:
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], check=False)
    elif sys.platform != "win32":
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


if __name__ == "__main__":
    main(pathlib.Path(__file__).parent)
