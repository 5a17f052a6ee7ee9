"""`invoke lock`: pins are written where they belong, and only what was really fetched."""

from __future__ import annotations

import errno
import hashlib
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from requests.adapters import HTTPAdapter

from pipelines.errors import LockError, StorageError
from pipelines.toolchain import sources
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock
from pipelines.toolchain.pinning import Pinned, complete, with_pins

ALPHA, BETA, GAMMA = b"alpha" * 1000, b"beta" * 500_000, b"gamma"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


#: As the shipped one is written: comments at every place where a rewrite could lose them.
LOCK = f"""\
# Head.
version: 1

# Not known yet.
unpinned:
  - alpha
  # The big one.
  - beta  # soon

  - gamma

# All tools.
tools:
  # == first ==
  alpha:
    version: "1.0"  # quoted
    toolset: "14.44"
    components: [Microsoft.A,
      Microsoft.B]
    sources:
      - url: https://a.invalid/alpha
        file: alpha.exe

  # == second ==
  beta:
    version: "2"
    sources:
      # The mirror first.
      - url: https://b.invalid/none
        file: beta.zip
        sha256: {sha(BETA)}  # known

      # Then the origin.
      - url: https://a.invalid/beta
        file: beta.zip
  done:
    version: "3"
    sources:
      - url: https://a.invalid/done
        file: done.zip
        sha256: {sha(b"done")}
        size: 4
  gamma:
    version: "4"
    sources:
      - {{url: 'https://a.invalid/gamma', file: gamma.zip}}
# End.
"""
BLOCK = LOCK.replace(
    "      - {url: 'https://a.invalid/gamma', file: gamma.zip}\n",
    "      - url: 'https://a.invalid/gamma'\n        file: gamma.zip\n",
)

#: What a complete run makes of BLOCK, to the byte.
COMPLETE = (
    BLOCK.replace("  - alpha\n", "")
    .replace("  - beta  # soon\n", "")
    .replace("  - gamma\n", "")
    .replace("unpinned:\n", "unpinned: []\n")
    .replace(
        "file: alpha.exe\n",
        f"file: alpha.exe\n        sha256: {sha(ALPHA)}\n        size: {len(ALPHA)}\n",
    )
    .replace("  # known\n", f"  # known\n        size: {len(BETA)}\n")
    .replace(
        "beta\n        file: beta.zip\n",
        f"beta\n        file: beta.zip\n        sha256: {sha(BETA)}\n        size: {len(BETA)}\n",
    )
    .replace(
        "file: gamma.zip\n",
        f"file: gamma.zip\n        sha256: {sha(GAMMA)}\n        size: {len(GAMMA)}\n",
    )
)


class Server(ThreadingHTTPServer):
    """Answers from ``files``: bytes, or a function that writes the whole response."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Any] = {"/alpha": ALPHA, "/beta": BETA, "/gamma": GAMMA}
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.files.get(self.path)
        if callable(found):
            found(self)
        elif found is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


class Rerouted(HTTPAdapter):
    """Brings every https request to the local server; the response keeps its address."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        local = request.copy()
        local.url = f"http://127.0.0.1:{self.port}/{str(request.url).split('/', 3)[3]}"
        response = super().send(local, *args, **options)
        response.url, response.request = str(request.url), request
        return response


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def session() -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.mount("https://", Rerouted(made.server_port))
        return session

    monkeypatch.setattr(sources, "session", session)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "toolchain.lock.yaml"
    path.write_text(BLOCK)
    return path


def below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_everything_is_completed(server: Server, lock: Path, tmp_path: Path) -> None:
    lock.chmod(0o640)
    steps: list[tuple[str, int, int]] = []
    pins = complete(lock, progress=lambda *step: steps.append(step))
    assert pins == [
        Pinned("alpha", "1.0", sha(ALPHA), len(ALPHA), "https://a.invalid/alpha"),
        Pinned("beta", "2", sha(BETA), len(BETA), "https://a.invalid/beta"),
        Pinned("gamma", "4", sha(GAMMA), len(GAMMA), "https://a.invalid/gamma"),
    ]
    assert lock.read_text() == COMPLETE
    assert stat.S_IMODE(lock.stat().st_mode) == 0o640
    assert ("alpha", len(ALPHA), len(ALPHA)) in steps
    assert below(tmp_path) == ["alpha.exe", "beta.zip", "gamma.zip", lock.name]
    # Nothing is fetched twice, neither to use it nor to pin it.
    asked = list(server.asked)
    cache = Cache(load_lock(lock))
    assert cache.fetch("beta").read_bytes() == BETA
    assert cache.missing(["alpha", "beta", "gamma"]) == []
    assert complete(lock) == []
    assert server.asked == asked


def test_an_entry_of_a_cell_keeps_what_it_requires(server: Server, lock: Path) -> None:
    """As torch's wheels are written, half of them with a sha256."""
    entry = f"""\
  torch-2.8-cu128-cp312:
    version: "2.8.0+cu128"
    requires: [done,
      gamma]
    sources:
      - url: https://a.invalid/whl/torch-2.8.0%2Bcu128-cp312.whl
        file: torch-2.8.0+cu128-cp312.whl
        sha256: {sha(ALPHA)}
"""
    text = BLOCK.replace("  done:\n", f"{entry}  done:\n")
    text = text.replace("unpinned:\n", "unpinned:\n  - torch-2.8-cu128-cp312\n")
    lock.write_text(text)
    server.files["/whl/torch-2.8.0%2Bcu128-cp312.whl"] = ALPHA
    assert [pin.tool for pin in complete(lock, ["torch-2.8-cu128-cp312"])] == [
        "torch-2.8-cu128-cp312"
    ]
    pinned = entry + f"        size: {len(ALPHA)}\n"
    assert lock.read_text() == BLOCK.replace("  done:\n", f"{pinned}  done:\n")
    tool = load_lock(lock).tool("torch-2.8-cu128-cp312")
    assert (tool.requires, tool.size) == (("done", "gamma"), len(ALPHA))


def test_only_the_named_ones(server: Server, lock: Path) -> None:
    assert [pin.tool for pin in complete(lock, ["gamma", "done"])] == ["gamma"]
    assert server.asked == ["/gamma"]
    assert load_lock(lock).unpinned == ("alpha", "beta")
    with pytest.raises(LockError, match="no tool 'delta'"):
        complete(lock, ["alpha", "delta"])
    assert server.asked == ["/gamma"]


def test_a_known_hash_that_does_not_match(server: Server, lock: Path, tmp_path: Path) -> None:
    server.files["/beta"] = BETA[:-1] + b"!"
    with pytest.raises(LockError) as caught:
        complete(lock, ["beta"])
    assert f"beta.zip has sha256 {sha(server.files['/beta'])}, the lock says" in str(caught.value)
    assert "404" in caught.value.message  # the mirror is named as well
    assert caught.value.advice
    assert lock.read_text() == BLOCK
    assert below(tmp_path) == [lock.name]


def test_a_known_size_that_does_not_match(server: Server, lock: Path, tmp_path: Path) -> None:
    for size in (len(GAMMA) + 1, len(GAMMA) - 1):
        lock.write_text(BLOCK.replace("gamma.zip\n", f"gamma.zip\n        size: {size}\n"))
        with pytest.raises(LockError, match="bytes"):
            complete(lock, ["gamma"])
        assert load_lock(lock).unpinned == ("alpha", "beta", "gamma")
        assert below(tmp_path) == [lock.name]


def test_one_that_cannot_be_fetched_stops_no_other(server: Server, lock: Path) -> None:
    del server.files["/beta"]
    with pytest.raises(LockError, match="1 of 3 tools could not be pinned") as caught:
        complete(lock)
    assert "beta 2 could not be fetched" in caught.value.message
    assert "https://b.invalid/none" in caught.value.message
    assert "alpha 1.0" not in caught.value.message
    assert "Pinned: alpha, gamma." in caught.value.advice
    assert load_lock(lock).unpinned == ("beta",)
    server.files["/beta"] = BETA
    assert [pin.tool for pin in complete(lock)] == ["beta"]
    assert load_lock(lock).unpinned == ()
    assert server.asked.count("/alpha") == 1


def test_interrupted_half_way(server: Server, lock: Path, tmp_path: Path) -> None:
    def interrupt(tool: str, done: int, total: int) -> None:
        if tool == "beta" and done >= 1 << 20:
            assert done < total == len(BETA)  # in the middle of the file
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        complete(lock, progress=interrupt)
    assert load_lock(lock).unpinned == ("beta", "gamma")
    assert load_lock(lock).tool("alpha").sha256 == sha(ALPHA)
    assert below(tmp_path) == ["alpha.exe", lock.name]
    assert [pin.tool for pin in complete(lock)] == ["beta", "gamma"]
    assert lock.read_text() == COMPLETE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_lock(
    server: Server, lock: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(handle: int) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr("pipelines.toolchain.pinning.os.fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*full") as caught:
        complete(lock)
    assert caught.value.advice
    assert lock.read_text() == BLOCK
    assert not [name for name in below(lock.parent) if name.endswith(".part")]
    assert server.asked == ["/alpha"]  # the next one would not be kept either


def test_what_is_in_the_cache_is_not_fetched(server: Server, lock: Path) -> None:
    path = Cache(load_lock(lock)).place("beta.zip", sha(BETA))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert [pin.place for pin in complete(lock, ["beta"])] == ["https://a.invalid/beta"]
    assert path.read_bytes() == BETA
    lock.write_text(BLOCK)
    server.files.clear()
    (pin,) = complete(lock, ["beta"])
    assert (pin.sha256, pin.size, pin.place) == (sha(BETA), len(BETA), "the download cache")


def test_a_link_to_the_lock_stays_a_link(server: Server, lock: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(lock.name)
    complete(link)
    assert link.is_symlink()
    assert lock.read_text() == COMPLETE


def test_somebody_else_pins_meanwhile(server: Server, lock: Path) -> None:
    def other(tool: str, done: int, total: int) -> None:
        lock.write_text(COMPLETE)

    with pytest.raises(LockError, match="alpha was pinned or removed by somebody else"):
        complete(lock, ["alpha"], progress=other)
    assert lock.read_text() == COMPLETE


# -- what a server may send ------------------------------------------------------------------------


def raw(*lines: str, body: bytes = b"") -> Any:
    """A response as it is written here, after which the connection ends."""

    def respond(handler: Handler) -> None:
        head = "\r\n".join(("HTTP/1.1 200 OK", "Connection: close", *lines, "", ""))
        handler.wfile.write(head.encode() + body)
        handler.close_connection = True

    return respond


def moved(to: str) -> Any:
    def respond(handler: Handler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return respond


BROKEN = {
    "cut": (raw("Content-Length: 9", body=b"gam"), "IncompleteRead"),
    "cut chunk": (
        raw("Transfer-Encoding: chunked", body=b"9\r\ngam"),
        "InvalidChunkLength|Incompl",
    ),
    "no length": (raw(body=GAMMA), "does not say how long"),
    "empty": (raw("Content-Length: 0"), "is empty"),
    "too long": (raw("Content-Length: 60000", body=b"x" * 60000), "more than"),
    "in a circle": (moved("https://a.invalid/gamma"), "redirects"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_may_be_cut_or_forged_is_not_pinned(
    server: Server, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server.files["/gamma"], said = BROKEN[kind]
    monkeypatch.setattr(sources, "LIMIT", 50_000)
    with pytest.raises(LockError, match=said):
        complete(lock, ["gamma"])
    assert lock.read_text() == BLOCK
    assert below(tmp_path) == [lock.name]


def test_a_redirect_without_tls_is_refused(
    server: Server, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/gamma"] = moved(f"http://127.0.0.1:{server.server_port}/beta")
    with pytest.raises(LockError, match=r"redirected to http://127\.0\.0\.1.*not https"):
        complete(lock, ["gamma"])
    server.files["/gamma"] = moved("https://c.invalid/alpha")
    (pin,) = complete(lock, ["gamma"])
    assert pin.sha256 == sha(ALPHA)


def test_counted_chunks_are_complete(server: Server, lock: Path) -> None:
    body = b"5\r\ngamma\r\n0\r\n\r\n"
    server.files["/gamma"] = raw("Transfer-Encoding: chunked", body=body)
    steps: list[tuple[int, int]] = []
    (pin,) = complete(lock, ["gamma"], progress=lambda _, *step: steps.append(step))
    assert (pin.sha256, pin.size) == (sha(GAMMA), len(GAMMA))
    assert steps == [(len(GAMMA), 0)]


# -- the text --------------------------------------------------------------------------------------


def pin(name: str, data: bytes = GAMMA) -> Pinned:
    return Pinned(name, "1", sha(data), len(data), "x")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gamma", "", ""),  # its source is in one line
        ("alpha", "unpinned:\n  - alpha\n", "unpinned:\n  - >-\n    alpha\n"),
        ("alpha", "file: alpha.exe\n", "file: alpha.exe\n        size:\n"),
    ],
)
def test_a_form_that_cannot_be_completed(name: str, old: str, new: str) -> None:
    assert old in LOCK
    with pytest.raises(LockError, match=f"{name} is written in a way") as caught:
        with_pins(LOCK.replace(old, new), pin(name))
    assert sha(GAMMA) in caught.value.advice


def test_a_last_line_without_its_end() -> None:
    text = BLOCK.removesuffix("# End.\n").removesuffix("\n")
    made = with_pins(text, pin("gamma"))
    assert made.endswith(f"file: gamma.zip\n        sha256: {sha(GAMMA)}\n        size: 5\n")


tails = st.sampled_from(["", "  # right", "\n\n    # below", "\n# left\n\n"])


@st.composite
def locks(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A lock with comments anywhere, and its unpinned tools in some order."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 5)))]
    lacking = [name for name in names if draw(st.booleans())]
    lines = ["version: 1", "unpinned:" if lacking else "unpinned: []"]
    lines += [f"  - {name}" for name in draw(st.permutations(lacking))]
    lines.append("tools:")
    for name in names:
        lines += [f"  {name}:", '    version: "1"', "    sources:"]
        count = draw(st.integers(1, 2))
        without = draw(st.integers(0, count - 1)) if name in lacking else count
        for number in range(count):
            keys = [f"url: https://{name}.invalid/{number}", "file: f"]
            if number != without:
                keys += [f"sha256: {sha(GAMMA)}", f"size: {len(GAMMA)}"]
            elif draw(st.booleans()):
                keys.append(f"sha256: {sha(GAMMA)}")
            keys = draw(st.permutations(keys))
            lines += [("        " if n else "      - ") + key for n, key in enumerate(keys)]
    return "".join(line + draw(tails) + "\n" for line in lines), draw(st.permutations(lacking))


@settings(deadline=None)
@given(locks())
def test_nothing_but_the_pins_changes(made: tuple[str, list[str]]) -> None:
    text, order = made
    before = text.splitlines()
    for name in order:
        text = with_pins(text, pin(name))
    lock = ToolchainLock.model_validate(yaml.safe_load(text))
    assert lock.unpinned == ()
    assert all(
        tool.sha256 == sha(GAMMA) and tool.size == len(GAMMA) for tool in lock.tools.values()
    )
    kept = [line for line in before if not line.startswith("  - ")]
    kept = [f"unpinned: []{k[9:]}" if k.startswith("unpinned:") and order else k for k in kept]
    after = text.splitlines()
    rest = iter(after)
    assert all(line in rest for line in kept)  # in their order
    added = sum(line.lstrip(" -").startswith(("sha256: ", "size: ")) for line in after) - sum(
        line.lstrip(" -").startswith(("sha256: ", "size: ")) for line in before
    )
    assert len(after) == len(kept) + added
