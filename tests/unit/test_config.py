"""pipeline.yaml and recipes: whatever is wrong is named, with hint and exit code 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from pipelines.core.errors import ConfigError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.plan.config.model import load_config
from pipelines.plan.config.schema import config_schema, recipe_schema
from pipelines.recipe.load import check_python, for_cell, load_recipe

WINRM = "hosts:\n  lab: {{kind: winrm, endpoint: '{}', username: u, password_env: LAB_PW}}\n"


def refused(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert str(path) in caught.value.message
    return caught.value.message


def patterns(schema: object) -> set[str]:
    """Every pattern of a schema."""
    if isinstance(schema, list):
        return {one for part in schema for one in patterns(part)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own | patterns([*schema.values()])


def test_every_pattern_has_words_of_its_own() -> None:
    rows = yaml.safe_load((PACKAGE / "core/patterns.yaml").read_text("utf-8"))
    wanted = patterns([config_schema(), recipe_schema()])
    assert [row["pattern"] for row in rows if row["pattern"] not in wanted] == []
    assert wanted - {row["pattern"] for row in rows} == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: {lab: {kind: winrm, endpoint: lab}}\n", "lab.endpoint: expected WinRM's address"),
        ("hosts: {vm: {kind: vm, windows: 2025, disk: 128GB}}\n", "vm.disk: expected a number"),
        ("hosts: {box: {kind: container, memory: 16}}\n", "box.memory: expected a number"),
        ("hosts: [{kind: sandbox}]\n", "hosts: expected keys and values"),
        ("hosts: {A: {kind: sandbox}}\n", "such as lab1 (found 'A')"),
        ("hosts: {}\ndefault: {torch: 2.8}\n", "default.torch: unknown key here; recipes have"),
        ("hosts: {}\ndefault: {archs: [75]}\n", "default.archs: expected one text, such as"),
        ("hosts: {}\nprovenance: {trust: x}\n", "provenance.trust: expected a list"),
        ("hosts: {}\ncompile_cache: {kind: disk, size_gib: 0}\n", "expected 1 or more"),
        ("hosts: {}\ncompile_cache: {kind: disk, size_gib: x}\n", "expected a whole number"),
        ("hosts: {}\noffline: perhaps\n", "offline: expected true or false (found 'perhaps')"),
        ("hosts: {}\nhots: {}\n", "hots: unknown key"),
        ("hosts: {a: {kind: sandbox, prot: 1}}\n", "prot: unknown key"),
        ("hosts: {a: {kind: sandbox, http_port: 65536}}\n", "http_port"),
        ("hosts: {a: {kind: sandbox, https_port: -1}}\n", "https_port"),
        ("hosts: {a: {kind: sandbox, http_port: many}}\n", "'many'"),
        ("hosts: {a: {kind: docker}}\n", "hosts.a: unknown kind 'docker'"),
        ("hosts: {a: {kind: sandbox, htp_port: 1}}\n", "hosts.a.htp_port: unknown key; did you"),
        ("hosts: {a: {kind: winrm, endpiont: x}}\n", "unknown key; did you mean 'endpoint'?"),
        ("hosts: {sandbox: {kind: sandbox, prot: 1}}\n", "hosts.sandbox.prot: unknown key"),
        ("hosts: {python: {kind: local, pyton: x}}\n", "hosts.python.pyton: unknown key; did you"),
        ("hosts: {a: [5]}\n", "hosts.a: expected keys and values"),
        ("hosts: {}\ncompile_cache: {kind: s3, bucket: x, regoin: y}\n", "compile_cache.regoin: "),
        ("hosts: {'A B': {kind: sandbox}}\n", "A B"),
        ("hosts: {}\ndefault: {jobs: 0}\n", "default.jobs"),
        ("hosts: {a: {kind: sandbox, slots: 0}}\n", "hosts.a.slots"),
        ("hosts: {a: {kind: sandbox, slots: 65}}\n", "hosts.a.slots"),
        ("hosts: {}\nfleet: {hosts: []}\n", "fleet.hosts: expected 1 or more"),
        ("hosts: {a: {kind: sandbox}}\nfleet: {hosts: [b]}\n", "there is no host 'b'"),
        ("hosts: {a: {kind: sandbox}}\nfleet: {hosts: [a, a]}\n", "'a' is named twice"),
        ("hosts: {}\ndefault: {python: 3.1x}\n", "default.python"),
        ("hosts: {}\nfleet: {clock_minutes: 0}\n", "fleet.clock_minutes"),
        ("default: {}\n", "hosts"),
        ("", "(top level)"),
        ("- a\n", "(top level)"),
        ("hosts:\n  a: [\n  b: }\n", "pipeline.yaml:3: not YAML"),
        (b"hosts: \xff\n", "not UTF-8"),
    ],
)
def test_file_and_key_are_named(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(
    "endpoint",
    [
        "lab:5986/wsman",
        "ftp://lab/wsman",
        "https://lab:5986",
        "https:///wsman",
        "https://a b/wsman",
    ],
)
def test_wrong_endpoint(tmp_path: Path, endpoint: str) -> None:
    assert "endpoint" in refused(tmp_path, WINRM.format(endpoint))


def test_right_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(WINRM.format("https://lab:5986/wsman"))
    assert load_config(path).host("lab").kind == "winrm"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"password_env": "hunter2"}, "password_env"),
        ({"endpoint": "https://u:hunter2@lab:5986/wsman"}, "endpoint"),
    ],
)
def test_a_password_in_the_file_is_refused(
    tmp_path: Path, change: dict[str, object], key: str
) -> None:
    said = refused(tmp_path, lab(tmp_path, change))
    assert key in said
    assert "hunter2" not in said, "what is not a name may be the password itself"


LAB = {
    "kind": "winrm",
    "endpoint": "https://lab:5986/wsman",
    "username": "u",
    "password_env": "LAB_PW",
}
PIN = "ab" * 32


def lab(tmp_path: Path, keys: dict[str, object]) -> str:
    """The file with one host; a key that is None is left out."""
    merged = {key: value for key, value in (LAB | keys).items() if value is not None}
    return json.dumps({"hosts": {"lab": merged}})


@pytest.mark.parametrize("key", ["password", "Password", "passwd", "secret", "token"])
def test_key_for_a_password_says_where_it_belongs(tmp_path: Path, key: str) -> None:
    said = refused(tmp_path, lab(tmp_path, {key: "hunter2"}))
    assert f"{key}: passwords are not allowed" in said
    assert "password_env: NAME" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "key", ["verify", "verify_ssl", "validate_certs", "server_cert_validation"]
)
def test_verification_cannot_be_switched_off(tmp_path: Path, key: str) -> None:
    said = refused(tmp_path, lab(tmp_path, {key: False}))
    assert f"{key}: certificates are always verified" in said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"password_env": None}, "exactly one of password_env"),
        ({"password_prompt": True}, "found 2"),
        ({"password_keyring": "lab"}, "found 2"),
        ({"password_keyring": ""}, "password_keyring"),
        ({"username": None}, "username is missing"),
        ({"transport": "plaintext"}, "transport"),
        ({"transport": "ssl"}, "transport"),
        ({"transport": "kerberos"}, "uses kinit's ticket: remove password_env"),
        ({"transport": "certificate"}, "uses the certificate: remove password_env"),
        ({"transport": "certificate", "password_env": None}, "certificate_key and an https"),
        ({"certificate": "a.pem"}, "require transport: certificate"),
        ({"kerberos_delegation": True}, "transport: kerberos"),
        ({"ca": "a.pem", "pin": PIN}, "ca and pin are"),
        ({"endpoint": "http://lab/wsman", "pin": PIN}, "require an https endpoint"),
        ({"endpoint": "http://lab/wsman", "ca": "a.pem"}, "require an https endpoint"),
        ({"pin": "ab" * 20}, "SHA-1 thumbprint"),
        ({"pin": "ab" * 31}, "64 hexadecimal digits"),
        ({"pin": 12}, "pin"),
        # named once
        ({"transport": "basic"}, "'insecure: [basic]'"),
        ({"endpoint": "http://lab/wsman", "message_encryption": "never"}, "unencrypted is not"),
        ({"insecure": ["basic"]}, "insecure names basic"),
        ({"insecure": ["delegation"]}, "insecure names delegation"),
        ({"transport": "credssp"}, "'insecure: [delegation]'"),
        (
            {"transport": "kerberos", "password_env": None, "kerberos_delegation": True},
            "'insecure: [delegation]'",
        ),
        ({"insecure": ["unencrypted"]}, "insecure names unencrypted"),
        ({"insecure": ["everything"]}, "insecure"),
        (
            {"transport": "basic", "endpoint": "http://lab/wsman", "insecure": ["basic"]},
            "Basic over http cannot be encrypted",
        ),
        (
            {
                "transport": "basic",
                "endpoint": "http://lab/wsman",
                "insecure": ["basic"],
                "message_encryption": "never",
            },
            "'insecure: [basic, unencrypted]'",
        ),
        ({"transport": "basic", "message_encryption": "always"}, "has no message encryption"),
    ],
)
def test_ways_to_sign_in_that_do_not_fit(
    tmp_path: Path, keys: dict[str, object], said: str
) -> None:
    assert said in refused(tmp_path, lab(tmp_path, keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"password_env": None, "password_keyring": "lab"},
        {"password_env": None, "password_prompt": True},
        {"transport": "credssp", "insecure": ["delegation"]},
        {
            "transport": "kerberos",
            "password_env": None,
            "kerberos_delegation": True,
            "insecure": ["delegation"],
        },
        {
            "transport": "certificate",
            "password_env": None,
            "username": None,
            "certificate": "a.pem",
            "certificate_key": "a.key",
        },
        {"transport": "basic", "insecure": ["basic"]},
        {"endpoint": "http://lab/wsman"},
        {
            "endpoint": "http://lab/wsman",
            "message_encryption": "never",
            "insecure": ["unencrypted"],
        },
        {"message_encryption": "never"},  # inside TLS
    ],
)
def test_ways_to_sign_in(tmp_path: Path, keys: dict[str, object]) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(lab(tmp_path, keys))
    assert load_config(path).host("lab")


@pytest.mark.parametrize(
    "written",
    [
        PIN,
        PIN.upper(),
        ":".join(["AB"] * 32),
        " ".join(["ab"] * 32),
        f"sha256:{PIN}",
        f"sha256 Fingerprint={':'.join(['AB'] * 32)}",
    ],
)
def test_fingerprints_as_tools_print_them(tmp_path: Path, written: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(lab(tmp_path, {"pin": written}))
    host = load_config(path).host("lab")
    assert isinstance(host, WinRMHost)
    assert host.pin == PIN


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml")
    assert caught.value.hint
    assert "none.yaml" in caught.value.message


def test_a_link_to_nothing_is_no_absent_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hosts and defaults would silently be those of no file, or of one further up."""
    (tmp_path / "pipeline.yaml").write_text("hosts: {a: {kind: sandbox}}\n")
    below = tmp_path / "project"
    below.mkdir()
    (below / "pipeline.yaml").symlink_to(tmp_path / "gone")
    monkeypatch.delenv("WCW_CONFIG", raising=False)
    monkeypatch.chdir(below)
    with pytest.raises(ConfigError, match=r"project.pipeline\.yaml: "):
        load_config()


def test_a_working_directory_that_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.delenv("WCW_CONFIG", raising=False)
    monkeypatch.setattr(os, "getcwd", gone)
    with pytest.raises(ConfigError, match="working directory"):
        load_config()


def test_environment_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("hosts: {mine: {kind: sandbox}}\n")
    monkeypatch.setenv("WCW_CONFIG", str(path))
    assert list(load_config().hosts) == ["mine"]


def test_unknown_names_come_with_the_nearest() -> None:
    recipe = load_recipe("smoke-attention")
    for attempt, name, near in (
        (lambda: load_config().host("sandbx"), "sandbx", "sandbox"),
        (lambda: load_recipe("smoke-atention"), "smoke-atention", "smoke-attention"),
        (lambda: check_python("3.15", recipe), "3.15", "3.1"),
    ):
        with pytest.raises(ConfigError, match=f"unknown .* '{name}'") as caught:
            attempt()
        assert f"Did you mean '{near}" in caught.value.hint
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", "a/b", "Smoke"])
def test_recipe_names_are_no_paths(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown recipe"):
        load_recipe(name)


@pytest.mark.parametrize("version", ["three", "311", "3", "3.11.2", ""])
def test_odd_python(version: str) -> None:
    with pytest.raises(ConfigError, match="expected a release of Python 3") as caught:
        check_python(version, load_recipe("smoke-attention"))
    assert caught.value.hint == "Say 3.11."


def test_several_where_one_is_meant() -> None:
    attention, flash = load_recipe("smoke-attention"), load_recipe("flash-attn")
    for such, ask in (
        ("3.11", lambda: check_python("3.11,3.13", attention)),
        ("2.8", lambda: for_cell(flash, torch="2.8,2.9")),
        ("12.8", lambda: for_cell(flash, cuda="12.8,13.0")),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert caught.value.hint.startswith(f"One, such as {such}; for several type --select")


def test_the_hosts_of_a_fleet(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    hosts = "hosts: {a: {kind: sandbox}, b: {kind: sandbox}, c: {kind: sandbox}}\n"
    path.write_text(hosts + "fleet: {hosts: [b, a]}\n")
    config = load_config(path)
    assert config.fleet_hosts() == ("b", "a")
    assert config.fleet_hosts(["c"]) == ("c",)
    with pytest.raises(ConfigError, match="unknown host 'd'"):
        config.fleet_hosts(["a", "d"])
    with pytest.raises(ConfigError, match="'a' is named twice"):
        config.fleet_hosts(["a", "b", "a"])
    path.write_text(hosts)
    assert load_config(path).fleet_hosts() == ("a", "b", "c")


def test_a_version_of_what_has_none() -> None:
    with pytest.raises(ConfigError, match="which has no versions") as caught:
        load_recipe("smoke-attention", version="9")
    assert caught.value.hint == "Leave it out."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: smoke-attention\n", "name: other\n", "expected 'mine'"),
        ("license:", "progress: '[{done}]'\nlicense:", "progress: expected {done} and {total}"),
        ("{archs}", "{archz}", "environment.SMOKE_ATTENTION_ARCHS: unknown field {archz}"),
        ("kind: wheel", "kind: egg", "kind"),
        ("license:", "licence:", "licence: unknown key; did you mean 'license'?"),
        ('cuda: "13.0"', "cuda: new", "cuda"),
    ],
)
def test_wrong_recipe(tmp_path: Path, old: str, new: str, said: str) -> None:
    shipped = Path(__file__).parents[2] / "pipelines/recipes/smoke-attention.yaml"
    text = shipped.read_text()
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_recipe("mine", tmp_path)
    assert said in caught.value.message
    assert "mine.yaml" in caught.value.message
    assert caught.value.hint


def test_a_token_in_an_endpoint_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "hosts: {}\ncompile_cache: {kind: webdav, endpoint: 'https://dav.example/?token=word'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert "endpoint" in caught.value.message
    assert "word" not in caught.value.message
