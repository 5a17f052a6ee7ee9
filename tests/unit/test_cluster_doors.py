"""Who is let into a cluster, and who takes part in a fleet: certificates, addresses, names."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import socket
import ssl
import stat
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clusters import Cluster, until
from distributed import Scheduler
from plans import LAB

from pipelines.commands.program import run as run_command
from pipelines.config import Config
from pipelines.errors import ConfigError, HostError, PipelineError, StorageError, TransferError
from pipelines.files import sha256_of
from pipelines.fleet import asked as asked_module
from pipelines.fleet.cluster import certificates, parcels, wire
from pipelines.fleet.cluster.certificates import Address, check, knock, make, read_address
from pipelines.fleet.cluster.commission import Answered, Hello, Lent, Parcel, program
from pipelines.fleet.cluster.wire import Wire
from pipelines.fleet.party import party
from pipelines.toolchain.lock import load_lock

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep/fleet.pem"
    before = os.umask(0)
    try:
        make(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    left = check(file) - datetime.datetime.now(datetime.UTC)
    assert 360 < left.days < 366
    assert file.read_text().count("PRIVATE KEY-----") == 2, "its beginning and its end"
    with pytest.raises(FileExistsError):
        make(file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=r"can be read by others \(mode 0640\)") as caught:
        check(file)
    assert "chmod 600" in caught.value.advice


def test_a_file_that_is_not_good_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no") as caught:
        check(tmp_path / "none.pem")
    assert "Copy it" in caught.value.advice
    now = datetime.datetime.now(datetime.UTC)
    for days, name in ((400, "old"), (-2, "young")):
        make(tmp_path / name, now - datetime.timedelta(days=days))
        with pytest.raises(ConfigError, match="has expired, or this machine's clock") as caught:
            check(tmp_path / name)
        assert "the next one makes another" in caught.value.advice
    (tmp_path / "garbage").write_text("no certificate")
    make(tmp_path / "whole")
    for number, text in enumerate((tmp_path / "whole").read_text().split("-----BEGIN")):
        (tmp_path / f"part{number}").write_text(f"-----BEGIN{text}" if number else "")
    for name in ("garbage", "part0", "part1", "part2"):
        (tmp_path / name).chmod(0o600)
        with pytest.raises(ConfigError, match="is no certificate with its key"):
            check(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp://lab:8786", "tcp is for everybody who can reach it"),
        ("lab:8786", "expected tls://HOST:PORT"),
        ("tls://lab", "expected tls://HOST:PORT"),
        ("tls://lab:0", "expected"),
        ("tls://lab:70000", "expected"),
        ("tls://a b:1", "expected"),
        ("tls://u@lab:1", "expected"),
        ("tls://lab:1/x", "expected"),
    ],
)
def test_an_address_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="--scheduler") as caught:
        read_address(text, "--scheduler")
    assert said in caught.value.message


def test_addresses() -> None:
    assert read_address("tls://lab.example.org:8786", "x") == Address("lab.example.org", 8786)
    assert str(read_address("tls://[::1]:8786", "x")) == "tls://[::1]:8786"


def test_who_has_another_certificate_is_refused_at_both_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    make(other)
    with pytest.raises(ConfigError, match=r"has a certificate that .* does not vouch for"):
        knock(cluster.address, other)
    with pytest.raises(ConfigError, match="does not vouch for"):
        Wire(cluster.address, other)
    going = cluster.join("lab", lambda *_: ("", b""))
    assert going.error is None
    cluster.file, mine = other, cluster.file
    refused = cluster.join("evil", lambda *_: ("", b""))
    cluster.file = mine
    assert isinstance(refused.error, ConfigError)
    assert list(cluster.wire().members("hello")) == ["lab"]


@pytest.mark.parametrize("shown", ["none", "another"])
def test_the_scheduler_itself_lets_nobody_in_without_its_certificate(
    cluster: Cluster, tmp_path: Path, shown: str
) -> None:
    """Whatever the one that dials thinks of the scheduler's."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown == "another":
        make(tmp_path / "other.pem")
        context.load_cert_chain(tmp_path / "other.pem")
    heard = b""
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection((cluster.address.host, cluster.address.port), 10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        heard = secure.recv(1)
    assert heard == b"", "it speaks to whoever has one"


def test_a_refusal_of_the_scheduler_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer to a certificate comes after the handshake."""
    make(tmp_path / "other.pem")

    def trusting(_: Path, *, server: bool) -> ssl.SSLContext:
        assert not server
        made = ssl.create_default_context()
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        made.load_cert_chain(tmp_path / "other.pem")
        return made

    monkeypatch.setattr(certificates, "context", trusting)
    with pytest.raises(ConfigError, match=r"refuses the certificate: .*alert unknown ca"):
        knock(cluster.address, cluster.file)


def test_a_scheduler_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    make(tmp_path / "fleet.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(HostError, match="cannot be reached: Connection refused") as caught:
        knock(Address("127.0.0.1", port), tmp_path / "fleet.pem")
    assert "invoke fleet serve" in caught.value.advice
    with pytest.raises(HostError, match="cannot be reached"):
        knock(Address("nowhere.invalid", port), tmp_path / "fleet.pem")


def test_what_speaks_no_tls_is_told(tmp_path: Path) -> None:
    make(tmp_path / "fleet.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as one:
                one.recv(100)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ConfigError, match="does not speak TLS"):
            knock(Address("127.0.0.1", listening.getsockname()[1]), tmp_path / "fleet.pem")


def test_a_name_is_one_members(cluster: Cluster) -> None:
    cluster.join("lab", lambda *_: ("", b""))
    twice = cluster.join("lab", lambda *_: ("", b""))
    assert isinstance(twice.error, ConfigError)
    assert "has a member 'lab' already" in twice.error.message
    assert "--name" in twice.error.advice


def test_another_dask_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "version", lambda _: "2024.1.0")
    going = cluster.join("lab", lambda *_: ("", b""))
    assert isinstance(going.error, ConfigError)
    assert "has Dask" in going.error.message
    assert "here is 2024.1.0" in going.error.message
    with pytest.raises(ConfigError, match=r"here is 2024\.1\.0"):
        cluster.wire()


def test_a_scheduler_of_something_else_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_Scheduler", Scheduler)
    cluster.scheduler.end()
    cluster.serve()
    going = cluster.join("lab", lambda *_: ("", b""))
    assert isinstance(going.error, ConfigError)
    assert "is a Dask scheduler of something else" in going.error.message
    with pytest.raises(ConfigError, match="scheduler of something else"):
        cluster.wire()


def asked(tmp_path: Path, scheduler: str = "", *hosts: str) -> asked_module.Asked:
    settings = Config.model_validate(
        {
            "hosts": {"own": LAB, "other": LAB},
            "out": str(tmp_path / "out"),
            "fleet": {"hosts": ["own"], "certificate": str(tmp_path / "fleet.pem")},
        }
    )
    return asked_module.Asked(
        settings=settings,
        request=None,  # type: ignore[arg-type]
        plan=None,  # type: ignore[arg-type]
        hosts=hosts,
        scheduler=scheduler,
    )


def offer(*names: str) -> wire.Answer:
    given = Config.model_validate({"hosts": {"a": LAB}}).host("a").supply(load_lock())
    given = replace(given, instead=dict(given.instead))
    lent = Lent(given=given, windows=True, made=False, slots=2, price=1.5)
    hello = Hello(program=program(), hosts=dict.fromkeys(names, lent)).model_dump_json()
    return lambda *_: (Answered(told=hello).model_dump_json(), b"")


def test_who_takes_part(cluster: Cluster, tmp_path: Path, capsys: Captured) -> None:
    with party(asked(tmp_path)) as there:
        assert (there.names, there.cluster) == (("own",), None)
    where = str(cluster.address)
    with party(asked(tmp_path, where)) as there:
        assert there.names == ("own",)
    assert "nobody has joined" in capsys.readouterr().out
    cluster.join("lab", offer("a", "b"))
    cluster.join("gpu", offer("a"))
    every = ("own", "gpu/a", "lab/a", "lab/b")
    for names, found in (
        ((), every),
        (("lab/b",), ("lab/b",)),
        (("other", "lab/*"), ("other", "lab/a", "lab/b")),
        (("gpu/a", "gpu/*"), ("gpu/a",)),
        (("own",), ("own",)),
    ):
        with party(asked(tmp_path, where, *names)) as there:
            assert there.names == found
            host = there.asked.settings.host(there.names[-1])
            assert there.asked.settings.host("lab/a").slots == 2
            assert host.supply(load_lock()).cuda
    for names, said in (
        (("lab/c",), "--hosts lab/c: lab does not offer c"),
        (("off/*",), "off has not joined, or is away for now"),
        (("nobody",), "unknown host 'nobody'"),
    ):
        with pytest.raises(ConfigError, match=said), party(asked(tmp_path, where, *names)):
            pass
    with (
        pytest.raises(ConfigError, match="there is no --scheduler"),
        party(asked(tmp_path, "", "lab/a")),
    ):
        pass


def test_hosts_that_a_fleet_has_had_are_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    going = cluster.join("lab", offer("a"))
    where, folder = str(cluster.address), tmp_path / "fleet"
    folder.mkdir()
    with party(asked(tmp_path, where)) as there:
        assert there.remembered(folder).names == ("own", "lab/a")
    going.end()
    with party(asked(tmp_path, where)) as there:
        assert there.names == ("own",)
        known = there.remembered(folder)
        assert known.names == ("own", "lab/a")
        assert known.asked.settings.host("lab/a").price == 1.5
        (folder / "joined.json").write_text("{")
        with pytest.raises(StorageError, match=r"joined.json cannot be read") as caught:
            there.remembered(folder)
        assert "only members that are there now" in caught.value.advice


def packed(place: Path, *members: tuple[str, bytes, bytes]) -> tuple[Path, Parcel]:
    """An archive of these names, contents and types."""
    path = place / "x.tar"
    with tarfile.open(path, "w") as archive:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data)
            info.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            archive.addfile(info, io.BytesIO(data))
    return path, Parcel(sha256=sha256_of(path), size=path.stat().st_size, run="2026-x")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../outside", tarfile.REGTYPE),
        ("/outside", tarfile.REGTYPE),
        ("a/../../outside", tarfile.REGTYPE),
        ("a\\..\\outside", tarfile.REGTYPE),
        ("C:outside", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("link", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
        ("folder", tarfile.DIRTYPE),
        ("fine/below", tarfile.REGTYPE),
        ("aux.log", tarfile.REGTYPE),
    ],
)
def test_what_is_sent_stays_in_its_directory(tmp_path: Path, name: str, kind: bytes) -> None:
    path, parcel = packed(
        tmp_path, ("fine", b"1", tarfile.REGTYPE), (name, b"" if kind != b"0" else b"2", kind)
    )
    with pytest.raises(TransferError):
        parcels.unpack(path, parcel, tmp_path / "deep/run")
    assert not [*tmp_path.rglob("outside")]
    assert [one.name for one in (tmp_path / "deep/run").iterdir()] == ["fine"]


def test_what_is_no_run_or_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parcel = packed(tmp_path, ("fine", b"1", tarfile.REGTYPE))
    with pytest.raises(TransferError, match="holds no run"):
        parcels.unpack(path, parcel, tmp_path / "run")
    with pytest.raises(TransferError, match="were sent"):
        parcels.unpack(path, parcel.model_copy(update={"size": 3}), tmp_path / "run")
    monkeypatch.setattr(parcels, "_MOST_BYTES", 0)
    with pytest.raises(TransferError, match="more than"):
        parcels.unpack(path, parcel, tmp_path / "run")
    path.write_bytes(b"garbage" * 1000)
    wrong = Parcel(sha256=sha256_of(path), size=7000, run="2026-x")
    with pytest.raises(TransferError, match="cannot be unpacked"):
        parcels.unpack(path, wrong, tmp_path / "run")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"hosts: {{a: {{kind: sandbox}}}}\nout: '{tmp_path}/out'\n"
        f"fleet: {{certificate: '{tmp_path}/fleet.pem'}}\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(path))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fleet serve tcp://0.0.0.0:1", "tcp is for everybody"),
        ("fleet serve tls://a:1 more", "expected serve"),
        ("fleet serve --hosts a", "expected serve"),
        ("fleet join", "expected join tls://HOST:PORT"),
        ("fleet join tcp://a:1", "tcp is for everybody"),
        ("fleet join tls://127.0.0.1:1", "there is no"),
        ("fleet --hosts a", "--hosts is for invoke fleet join"),
        ("fleet --port 3", "--port is for invoke fleet join"),
        ("build --scheduler tls://a:1", "there is no --fleet beside it"),
        ("build --fleet --scheduler tcp://a:1", "tcp is for everybody"),
        ("build --fleet --scheduler tls://127.0.0.1:1", "there is no"),
        ("build --fleet --hosts lab/a", "there is no --scheduler"),
        ("plan --fleet --scheduler tcp://a:1", "tcp is for everybody"),
    ],
)
def test_what_is_typed_wrongly_is_refused(
    project: Path, capsys: Captured, words: str, said: str
) -> None:
    assert run_command(words.split()) == ConfigError.exit_code
    assert said in capsys.readouterr().err
    assert not (project / "out").exists()


def test_what_cannot_join_says_why(project: Path, capsys: Captured) -> None:
    make(project / "fleet.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    where = f"tls://127.0.0.1:{port}"
    for words, code, said in (
        (f"fleet join {where}", HostError.exit_code, "cannot be reached"),
        (f"fleet join {where} --hosts b", ConfigError.exit_code, "unknown host 'b'"),
        (f"fleet join {where} --name A/B", ConfigError.exit_code, "expected letters"),
        (f"build --fleet --scheduler {where}", HostError.exit_code, "cannot be reached"),
    ):
        assert run_command(words.split()) == code
        assert said in capsys.readouterr().err


def test_no_error_shows_the_key(tmp_path: Path) -> None:
    make(tmp_path / "fleet.pem")
    secret = (tmp_path / "fleet.pem").read_text().split("-----")[2].strip()[:40]
    (tmp_path / "fleet.pem").write_text((tmp_path / "fleet.pem").read_text()[:300])
    with pytest.raises(PipelineError) as caught:
        check(tmp_path / "fleet.pem")
    assert secret not in caught.value.message + caught.value.advice


def test_a_member_whose_old_self_is_not_forgotten_yet_waits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its way was cut, and the scheduler has not noticed: nobody else has its name."""
    monkeypatch.setattr(wire, "_PAUSE", 0.05)
    entered, taken = wire._entered, [1, 1]

    async def refused(*given: object, **options: object) -> object:
        if going.joined and taken:
            taken.pop()
            raise wire._TakenError("tls://x has a member 'lab' already")
        made = await entered(*given, **options)  # type: ignore[arg-type]
        going.joined = True
        return made

    class Now:
        joined = False

    going = Now()
    monkeypatch.setattr(wire, "_entered", refused)
    joined = cluster.join("lab", lambda *_: ("", b""))
    assert joined.error is None
    cluster.scheduler.end()
    cluster.serve()
    until(lambda: any("lab has joined" in one for one in cluster.said[1:]))
    assert (joined.error, taken) == (None, [])


def test_a_member_that_hangs_is_not_waited_for_by_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_HELLO", 1.0)
    over = threading.Event()

    def hang(*_: object) -> tuple[str, bytes]:
        over.wait(30)
        return "", b""

    cluster.join("lab", lambda *_: ("here", b""))
    cluster.join("stuck", hang)
    try:
        assert cluster.wire().members("hello") == {"lab": "here"}
    finally:
        over.set()
