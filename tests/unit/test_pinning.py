"""`invoke lock`: pins are written where they belong, and only what was really fetched."""

from __future__ import annotations

import errno
import hashlib
import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from requests.adapters import HTTPAdapter

from pipelines.cli import program
from pipelines.core.errors import LockError, StorageError
from pipelines.core.hosttext import redact
from pipelines.remote.safe_paths import name_fault
from pipelines.toolchain import command, obtaining, sources, toolkits
from pipelines.toolchain.generate import generate_lock, lock_text
from pipelines.toolchain.intent import INTENT_FILE, load_intent
from pipelines.toolchain.lock import LOCK_FILE, Cache, ToolchainLock, load_lock
from pipelines.toolchain.pinning import Pinned, pin_unpinned_tools

ALPHA, BETA, GAMMA = b"alpha" * 1000, b"beta" * 500_000, b"gamma"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def place(name: str, file: str, data: bytes | None = None, size: int | None = None) -> Any:
    """A source as the lock has it: with the sha256 of ``data``, and ``size``."""
    made = {"url": f"https://{name}", "file": file, "sha256": data and sha(data), "size": size}
    return {key: value for key, value in made.items() if value is not None}


#: Nothing known, a sha256 and a mirror, everything, and nothing again.
TOOLS: dict[str, Any] = {
    "alpha": {
        "version": "1.0",
        "components": ["Microsoft.A", "Microsoft.B"],
        "toolset": "14.44",
        "sources": [place("a.invalid/alpha", "alpha.exe")],
    },
    "beta": {
        "version": "2",
        "sources": [
            place("b.invalid/none", "beta.zip", BETA),
            place("a.invalid/beta", "beta.zip"),
        ],
    },
    "done": {"version": "3", "sources": [place("a.invalid/done", "done.zip", b"done", 4)]},
    "gamma": {"version": "4", "sources": [place("a.invalid/gamma", "gamma.zip")]},
}


def lock_with(*unpinned: str, **changes: Any) -> str:
    """The lock's text, with some tools other than above."""
    made = {"version": 1, "unpinned": unpinned, "tools": TOOLS | changes}
    return lock_text(ToolchainLock.model_validate(made))


BLOCK = lock_with("alpha", "beta", "gamma")
#: What a complete run makes of it, to the byte.
COMPLETE = lock_with(
    alpha=TOOLS["alpha"] | {"sources": [place("a.invalid/alpha", "alpha.exe", ALPHA, len(ALPHA))]},
    beta=TOOLS["beta"]
    | {
        "sources": [
            place("b.invalid/none", "beta.zip", BETA, len(BETA)),
            place("a.invalid/beta", "beta.zip", BETA, len(BETA)),
        ]
    },
    gamma=TOOLS["gamma"] | {"sources": [place("a.invalid/gamma", "gamma.zip", GAMMA, len(GAMMA))]},
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

    monkeypatch.setattr(sources, "system_trust_session", session)
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
    pins = pin_unpinned_tools(lock, progress=lambda *step: steps.append(step))
    assert pins == [
        Pinned("alpha", "1.0", sha(ALPHA), len(ALPHA), "https://a.invalid/alpha"),
        Pinned("beta", "2", sha(BETA), len(BETA), "https://a.invalid/beta"),
        Pinned("gamma", "4", sha(GAMMA), len(GAMMA), "https://a.invalid/gamma"),
    ]
    assert lock.read_text() == COMPLETE
    assert stat.S_IMODE(lock.stat().st_mode) == 0o640
    assert ("1/3 alpha", len(ALPHA), len(ALPHA)) in steps
    assert below(tmp_path) == ["alpha.exe", "beta.zip", "gamma.zip", lock.name]
    # Nothing is fetched twice, neither to use it nor to pin it.
    asked = list(server.asked)
    cache = Cache(load_lock(lock))
    assert cache.fetch("beta").read_bytes() == BETA
    assert cache.missing(["alpha", "beta", "gamma"]) == []
    assert pin_unpinned_tools(lock) == []
    assert server.asked == asked


def test_an_entry_of_a_cell_keeps_what_it_requires(server: Server, lock: Path) -> None:
    id_ = "torch-2.8-cu128-cp312"
    entry = {
        "name": "torch",
        "torch": "2.8",
        "cuda": "12.8",
        "python": "3.12",
        "version": "2.8.0+cu128",
        "requires": ["done", "gamma"],
        "sources": [place("a.invalid/whl/torch-2.8.0%2Bcu128-cp312.whl", "torch.whl")],
    }
    lock.write_text(lock_with("alpha", "beta", "gamma", id_, **{id_: entry}))
    server.files["/whl/torch-2.8.0%2Bcu128-cp312.whl"] = ALPHA
    before = load_lock(lock).tools
    assert [pin.tool for pin in pin_unpinned_tools(lock, [id_])] == [id_]
    source = entry["sources"][0] | {"sha256": sha(ALPHA), "size": len(ALPHA)}
    pinned = entry | {"sources": [source]}
    assert lock.read_text() == lock_with("alpha", "beta", "gamma", **{id_: pinned})
    after = load_lock(lock).tools
    assert after[id_].model_dump() == before[id_].model_dump() | {
        "sources": (after[id_].sources[0].model_dump(),)
    }
    assert after[id_].size == len(ALPHA)


def test_only_the_named_ones(server: Server, lock: Path) -> None:
    assert [pin.tool for pin in pin_unpinned_tools(lock, ["gamma", "done"])] == ["gamma"]
    assert server.asked == ["/gamma"]
    assert load_lock(lock).unpinned == ("alpha", "beta")
    with pytest.raises(LockError, match="no tool 'delta'"):
        pin_unpinned_tools(lock, ["alpha", "delta"])
    assert server.asked == ["/gamma"]


def test_a_known_hash_that_does_not_match(server: Server, lock: Path, tmp_path: Path) -> None:
    server.files["/beta"] = BETA[:-1] + b"!"
    with pytest.raises(LockError) as caught:
        pin_unpinned_tools(lock, ["beta"])
    assert f"beta.zip has sha256 {sha(server.files['/beta'])}, the lock says" in str(caught.value)
    assert "404" in caught.value.message  # the mirror is named as well
    assert caught.value.hint
    assert lock.read_text() == BLOCK
    assert below(tmp_path) == [lock.name]


def test_a_known_size_that_does_not_match(server: Server, lock: Path, tmp_path: Path) -> None:
    for size in (len(GAMMA) + 1, len(GAMMA) - 1):
        gamma = TOOLS["gamma"] | {"sources": [place("a.invalid/gamma", "gamma.zip", None, size)]}
        lock.write_text(lock_with("alpha", "beta", "gamma", gamma=gamma))
        with pytest.raises(LockError, match="bytes"):
            pin_unpinned_tools(lock, ["gamma"])
        assert load_lock(lock).unpinned == ("alpha", "beta", "gamma")
        assert below(tmp_path) == [lock.name]


def test_one_that_cannot_be_fetched_stops_no_other(server: Server, lock: Path) -> None:
    del server.files["/beta"]
    with pytest.raises(LockError, match="1 of 3 tools could not be pinned") as caught:
        pin_unpinned_tools(lock)
    assert "beta 2 could not be fetched" in caught.value.message
    assert "https://b.invalid/none" in caught.value.message
    assert "alpha 1.0" not in caught.value.message
    assert "Pinned: alpha, gamma." in caught.value.hint
    assert load_lock(lock).unpinned == ("beta",)
    server.files["/beta"] = BETA
    assert [pin.tool for pin in pin_unpinned_tools(lock)] == ["beta"]
    assert load_lock(lock).unpinned == ()
    assert server.asked.count("/alpha") == 1


def test_interrupted_half_way(server: Server, lock: Path, tmp_path: Path) -> None:
    def interrupt(tool: str, done: int, total: int) -> None:
        if tool == "2/3 beta":  # its first piece, of a MiB at most
            assert 0 < done < total == len(BETA)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pin_unpinned_tools(lock, progress=interrupt)
    assert load_lock(lock).unpinned == ("beta", "gamma")
    assert load_lock(lock).tool("alpha").sha256 == sha(ALPHA)
    assert below(tmp_path) == ["alpha.exe", lock.name]
    assert [pin.tool for pin in pin_unpinned_tools(lock)] == ["beta", "gamma"]
    assert lock.read_text() == COMPLETE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_lock(
    server: Server, lock: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(handle: int) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr("pipelines.core.files.os.fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*toolchain\.lock\.yaml.*full") as caught:
        pin_unpinned_tools(lock)
    assert caught.value.hint
    assert lock.read_text() == BLOCK
    assert not [name for name in below(lock.parent) if name.endswith(".part")]
    assert server.asked == ["/alpha"]  # the next one would not be kept either


def test_what_is_in_the_cache_is_not_fetched(server: Server, lock: Path) -> None:
    path = Cache(load_lock(lock)).place("beta.zip", sha(BETA))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert [pin.place for pin in pin_unpinned_tools(lock, ["beta"])] == ["https://a.invalid/beta"]
    assert path.read_bytes() == BETA
    lock.write_text(BLOCK)
    server.files.clear()
    (pin,) = pin_unpinned_tools(lock, ["beta"])
    assert (pin.sha256, pin.size, pin.place) == (sha(BETA), len(BETA), "the download cache")


def test_a_link_to_the_lock_stays_a_link(server: Server, lock: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(lock.name)
    pin_unpinned_tools(link)
    assert link.is_symlink()
    assert lock.read_text() == COMPLETE


def test_somebody_else_pins_meanwhile(server: Server, lock: Path) -> None:
    def other(tool: str, done: int, total: int) -> None:
        lock.write_text(COMPLETE)

    with pytest.raises(LockError, match="alpha was pinned or removed by another process"):
        pin_unpinned_tools(lock, ["alpha"], progress=other)
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
    monkeypatch.setattr(obtaining, "LIMIT", 50_000)
    with pytest.raises(LockError, match=said):
        pin_unpinned_tools(lock, ["gamma"])
    assert lock.read_text() == BLOCK
    assert below(tmp_path) == [lock.name]


def test_a_redirect_without_tls_is_refused(
    server: Server, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/gamma"] = moved(f"http://127.0.0.1:{server.server_port}/beta")
    with pytest.raises(LockError, match="redirects to an address without TLS"):
        pin_unpinned_tools(lock, ["gamma"])
    server.files["/gamma"] = moved("https://c.invalid/alpha")
    (pin,) = pin_unpinned_tools(lock, ["gamma"])
    assert pin.sha256 == sha(ALPHA)


def test_a_signature_of_a_redirect_is_not_told(server: Server, lock: Path) -> None:
    for place in ("https://c.invalid/gone", f"http://127.0.0.1:{server.server_port}/beta"):
        server.files["/gamma"] = moved(f"{place}?X-Signature=untold7")
        with pytest.raises(LockError) as caught:
            pin_unpinned_tools(lock, ["gamma"])
        assert "untold7" not in redact(caught.value.message)


def test_counted_chunks_are_complete(server: Server, lock: Path) -> None:
    body = b"5\r\ngamma\r\n0\r\n\r\n"
    server.files["/gamma"] = raw("Transfer-Encoding: chunked", body=body)
    steps: list[tuple[int, int]] = []
    (pin,) = pin_unpinned_tools(lock, ["gamma"], progress=lambda _, *step: steps.append(step))
    assert (pin.sha256, pin.size) == (sha(GAMMA), len(GAMMA))
    assert steps == [(len(GAMMA), 0)]


# -- the text --------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
numbers = st.tuples(st.integers(0, 20), st.integers(0, 20)).map("{0[0]}.{0[1]}".format)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Any]:
    pins = draw(st.fixed_dictionaries({}, optional={"sha256": hashes, "size": st.integers(1)}))
    files = draw(
        st.lists(
            st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]*", fullmatch=True).filter(
                lambda name: not name_fault(name)
            ),
            min_size=1,
        )
    )
    axes = draw(st.fixed_dictionaries({}, optional={"torch": numbers, "cuda": numbers}))
    sources = [{"apt": draw(words), "file": file, **pins} for file in files]
    return {"name": draw(words), "version": draw(words), "sources": sources, **axes}


@given(st.dictionaries(words, tools(), max_size=4))
def test_a_lock_comes_back_as_it_was_written(rows: dict[str, Any]) -> None:
    unpinned = [name for name, row in rows.items() if "sha256" not in row["sources"][0]]
    assume(len({(r["name"], r.get("torch"), r.get("cuda")) for r in rows.values()}) == len(rows))
    lock = ToolchainLock.model_validate({"version": 1, "unpinned": unpinned, "tools": rows})
    text = lock_text(lock)
    assert text.startswith("# Generated by `invoke lock` from toolchain.yaml: do not edit.\n")
    again = ToolchainLock.model_validate(yaml.load(text, yaml.CSafeLoader))
    assert again.tools == lock.tools
    assert sorted(again.unpinned) == sorted(lock.unpinned)
    assert lock_text(again) == text
    order = lock.model_copy(update={"tools": dict(reversed(lock.tools.items()))})
    assert lock_text(order) == text


# -- downloads that break off ----------------------------------------------------------------------


class Big:
    """Answers with GAMMA's place: half of it the first time, and what is asked for after that."""

    def __init__(self, data: bytes, *tags: str) -> None:
        self.data, self.tags = data, [*tags]
        self.ranges: list[tuple[str | None, str | None]] = []
        self.sent = 0

    def __call__(self, handler: Handler) -> None:
        tag = self.tags.pop(0) if len(self.tags) > 1 else self.tags[0]
        asked = handler.headers["Range"], handler.headers["If-Range"]
        self.ranges.append(asked)
        first = int(str(asked[0])[len("bytes=") : -1]) if asked[0] and asked[1] == tag else 0
        body = self.data[first:]
        handler.send_response(206 if first else 200)
        if first:
            handler.send_header("Content-Range", f"bytes {first}-{len(self.data) - 1}/x")
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", tag)
        handler.end_headers()
        now = body[: len(body) // 2] if len(self.ranges) == 1 else body
        self.sent += len(now)
        handler.wfile.write(now)


@pytest.mark.parametrize(
    ("tags", "resumed"),
    [
        (('"one"',), True),
        (('"one"', '"another"'), False),  # another file meanwhile: from the beginning
        (('W/"one"',), False),  # a weak one may stand for other bytes
    ],
)
def test_what_broke_off_is_gone_on_with(
    server: Server, lock: Path, tmp_path: Path, tags: tuple[str, ...], resumed: bool
) -> None:
    data = bytes(range(256)) * 20_000
    big = server.files["/gamma"] = Big(data, *tags)
    with pytest.raises(LockError):
        pin_unpinned_tools(lock, ["gamma"])
    left = tmp_path / "cache/windows-cuda-wheels/downloads/.gamma.part/gamma.zip"
    half = left.stat().st_size if left.exists() else 0
    (done,) = pin_unpinned_tools(lock, ["gamma"])
    assert (done.sha256, done.size) == (sha(data), len(data))
    assert half == (0 if tags[0].startswith("W/") else len(data) // 2)
    assert big.ranges == [(None, None), (f"bytes={half}-", tags[0]) if half else (None, None)]
    assert big.sent == len(data) // 2 + (len(data) - half if resumed else len(data))
    assert Cache(load_lock(lock)).fetch("gamma").read_bytes() == data
    assert not left.parent.exists()


def test_how_much_is_left_is_said(
    server: Server, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    pin_unpinned_tools(lock, progress=lambda what, *_: seen.append(what))
    assert [*dict.fromkeys(seen)] == ["1/3 alpha", "2/3 beta", "3/3 gamma"]
    assert "3 files to fetch, 0 B and 3 of unknown size" in capsys.readouterr().out


def test_a_wrong_pin_fails_closed(server: Server, tmp_path: Path) -> None:
    """What the lock ships was published by others: other bytes are refused, whatever their size."""
    right = {"version": "1", "sources": [place("a.invalid/gamma", "gamma.zip", GAMMA)]}
    wrong = {"version": "1", "sources": [place("a.invalid/gamma", "gamma.zip", ALPHA)]}
    tools = {"right": right, "wrong": wrong}
    cache = Cache(ToolchainLock.model_validate({"version": 1, "tools": tools}), tmp_path)
    with pytest.raises(LockError, match=f"sha256 {sha(GAMMA)}, pinned is {sha(ALPHA)}"):
        cache.fetch("wrong")
    assert cache.missing(["wrong"]) == ["wrong"]
    assert cache.fetch("right").read_bytes() == GAMMA
    assert "gamma.zip" in below(tmp_path / "downloads")
    assert not [*tmp_path.rglob("*.part")]


# -- a toolkit more --------------------------------------------------------------------------------

#: An excerpt of NVIDIA's own list: what the shipped lock has of it.
REDISTRIB = (Path(__file__).parent / "recorded/redistrib_13.4.2.json").read_bytes()


@pytest.fixture
def without_13_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> tuple[Path, ToolchainLock]:
    """A toolchain.yaml and a lock as they were before CUDA 13.4, and where NVIDIA's list is."""
    monkeypatch.setattr(toolkits, "system_trust_session", sources.system_trust_session)
    server.files = {"/compute/cuda/redist/redistrib_13.4.2.json": REDISTRIB}
    lock = load_lock()
    gone = {*lock.toolkits["13.4"]}
    kept = {id_: tool for id_, tool in lock.tools.items() if id_ not in gone}
    return tmp_path, lock.model_copy(update={"tools": kept})


def test_a_toolkit_is_what_nvidia_lists(
    without_13_4: tuple[Path, ToolchainLock], server: Server
) -> None:
    """The very entries that the shipped lock has, without a byte of them being fetched."""
    folder, before = without_13_4
    path = toolkits.add_toolkit("13.4", folder, before)
    assert path.name == "toolkit-13.4.yaml"
    (folder / INTENT_FILE.name).write_text("version: 1\ngroups: []\n")
    made = generate_lock(load_intent(folder / INTENT_FILE.name), before)
    shipped = load_lock()
    assert made.unpinned == ()
    assert made.tools == {id_: shipped.tools[id_] for id_ in shipped.toolkits["13.4"]}
    assert len(made.tools) == 14
    assert not [one for one in server.asked if one.endswith(".zip")]


@pytest.mark.parametrize(
    ("asked", "change", "said"),
    [
        ("13.6", {}, "lists no CUDA 13.6"),
        ("13", {}, "expected a release"),
        ("../13.6", {}, "expected a release"),
        ("13.4", {"release_label": "13.4.1"}, "another list"),
        ("13.4", {"libcurand": None}, "libcurand"),
        ("13.4", {"libcurand": {"version": "1"}}, "no libcurand for Windows"),
    ],
)
def test_a_list_that_is_none_adds_nothing(
    without_13_4: tuple[Path, ToolchainLock],
    server: Server,
    asked: str,
    change: dict[str, Any],
    said: str,
) -> None:
    folder, before = without_13_4
    data = json.loads(REDISTRIB) | change
    server.files["/compute/cuda/redist/redistrib_13.4.2.json"] = json.dumps(data).encode()
    with pytest.raises(LockError, match=said) as caught:
        toolkits.add_toolkit(asked, folder, before)
    assert caught.value.hint
    assert not [*folder.glob("toolkit-*")]


def test_the_command_adds_a_toolkit_to_ones_own(
    without_13_4: tuple[Path, ToolchainLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, before = without_13_4
    (folder / INTENT_FILE.name).write_text("version: 1\ngroups: []\n")
    mine = folder / LOCK_FILE.name
    monkeypatch.setattr(command, "own_lock", lambda: mine)
    monkeypatch.setattr(command, "load_lock", lambda *path: load_lock(*path) if path else before)
    assert program.run_command_line(["lock", "--cuda", "13.4"]) == 0
    assert {*load_lock(mine).toolkits} == {"13.4"}
