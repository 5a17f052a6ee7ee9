"""The named pipe of an engine on Windows: genuine pywin32, the SDK's socket, a server."""

from __future__ import annotations

import inspect
import subprocess
import sys
import zipfile
from pathlib import Path

import docker
from conftest import make_sandbox

from pipelines.hosts import engine
from pipelines.hosts.live import LiveSession
from pipelines.remote import process

ROOT = Path(__file__).parents[2]

_PROGRAM = r"""
import os, socket, sys, threading, time
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, here + r"\win32", here + r"\win32\lib"]
os.add_dll_directory(here + r"\pywin32_system32")
import pywintypes, win32file, win32pipe
from pipe import Pipe

def serve(does):
    mode = win32pipe.PIPE_TYPE_MESSAGE | win32pipe.PIPE_READMODE_MESSAGE  # as the engine's
    pipe = win32pipe.CreateNamedPipe(NAME + does, 3, mode, 1, 65536, 65536, 0, None)
    ready.set()
    win32pipe.ConnectNamedPipe(pipe)
    data = [win32file.ReadFile(pipe, 65536)[1]]
    if does == "echo":
        while data[-1]:
            data.append(win32file.ReadFile(pipe, 65536)[1])
        win32file.WriteFile(pipe, b"all " + b"".join(data))
        win32file.WriteFile(pipe, b"")
        ended.wait(30)
    elif does == "wait":
        try:
            win32file.ReadFile(pipe, 65536)
        except pywintypes.error:
            pass
    pipe.Close()

NAME = r"\\.\pipe\wcw-"

def raised(work):
    try:
        return work()
    except OSError as error:
        return type(error).__name__

print(raised(lambda: Pipe().connect(r"\\.\pipe\of-nobody")))
for does in ("echo", "drop", "wait"):
    ready, ended = threading.Event(), threading.Event()
    threading.Thread(target=serve, args=(does,), daemon=True).start()
    ready.wait(30)
    pipe = Pipe()
    pipe.connect(NAME + does)
    pipe.settimeout(None)
    pipe.sendall(b"x" * 1000)
    if does == "echo":
        pipe.shutdown(socket.SHUT_WR)
        got = b""
        while piece := pipe.recv(300):
            got += piece
        print(len(got), got[:5])
    elif does == "drop":
        print(pipe.recv(10), raised(lambda: pipe.send(b"y")))
    else:
        threading.Timer(0.5, pipe.close).start()
        print(pipe.recv(10), raised(lambda: pipe.send(b"y")))
    ended.set()
"""


def test_its_errors_are_ours_and_its_input_ends_alone(tmp_path: Path) -> None:
    """And whoever reads is woken when it is closed."""
    wanted = next(
        line.split(" ;")[0]
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if line.startswith("pywin32==")
    )
    places = ["--platform", "win_amd64", "--python-version", "3.11", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *places, wanted]
    subprocess.run(command, check=True, cwd=tmp_path)
    host = make_sandbox(tmp_path / "sandbox")
    try:
        session = LiveSession(host)
        session.connect()
        place = host.prefix / "drive_c/try"
        zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(place)
        sdk = place / "docker/transport"
        sdk.mkdir(parents=True)
        source = Path(docker.__file__).parent / "transport/npipesocket.py"
        (sdk / "npipesocket.py").write_bytes(source.read_bytes())
        (sdk / "__init__.py").write_text("class NpipeHTTPAdapter: pass\n")
        (sdk / "npipeconn.py").write_text("NpipeHTTPConnection = NpipeHTTPConnectionPool = object")
        ours = Path(inspect.getfile(engine)).with_name("pipe.py")
        (place / "pipe.py").write_bytes(ours.read_bytes())
        (place / "program.py").write_text(_PROGRAM)
        program = [r"C:\Python311\python.exe", r"C:\try\program.py"]
        _, said = session.call(process.capture, command=program, timeout=120.0)
        session.close()
    finally:
        host.teardown()
    assert said.splitlines() == [
        "FileNotFoundError",
        "1004 b'all x'",
        "b'' BrokenPipeError",
        "b'' BrokenPipeError",
    ]
