"""The rules of what goes with what: each with a case that breaks it and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import versions
from pipelines.core.architectures import archs
from pipelines.core.errors import ConfigError
from pipelines.plan.matrix import compat

#: Rule -> facts that break it, and facts next to them that do not.
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "host-config-1940": (
        {"msvc": "14.40.33807", "cuda": "12.3.107"},
        {"msvc": "14.39.33519", "cuda": "12.3.107"},
    ),
    "stl1002": (
        {"msvc": "14.44.35207", "cuda": "12.1.105"},
        {"msvc": "14.44.35207", "cuda": "12.4.0"},
    ),
    "host-config-1950": (
        {"msvc": "14.50.35717", "cuda": "13.1.115"},
        {"msvc": "14.50.35717", "cuda": "13.2.51"},
    ),
    "host-config-1960": (
        {"msvc": "14.60.36000", "cuda": "13.5.37"},
        {"msvc": "14.51.36231", "cuda": "13.5.37"},
    ),
    "host-config-1920": (
        {"msvc": "14.16.27023", "cuda": "13.0.88"},
        {"msvc": "14.16.27023", "cuda": "12.9.86"},
    ),
    "align-c2719": (
        {"msvc": "14.44.35207", "cuda": "13.2.78"},
        {"msvc": "14.44.35207", "cuda": "13.3.33"},
    ),
    "zc-preprocessor": (
        {"msvc": "14.44.35207", "cuda": "13.2.78"},
        {"msvc": "14.44.35207", "cuda": "13.1.115"},
    ),
    "torch-cxx20": ({"torch": "2.13.0.dev20260801+cu130"}, {"torch": "2.12.1+cu130"}),
    "torch-std-ambiguous": (
        {"torch": "2.7.0", "msvc": "14.42.34433"},
        {"torch": "2.7.0", "msvc": "14.44.35207"},
    ),
    "freethreaded-lib": (
        {"freethreaded": "3.14", "torch": "2.12.1+cu130"},
        {"freethreaded": "3.13", "torch": "2.12.1+cu130"},
    ),
    "server-2019": (
        {"windows": "10.0.17763", "cuda": "12.5.82"},
        {"windows": "10.0.20348", "cuda": "12.5.82"},
    ),
    "torch-small-macro": (
        {"torch": "2.11.0+cu130", "cuda": "13.0.88"},
        {"torch": "2.12.1+cu130", "cuda": "13.0.88"},
    ),
    "ptxas-sm90": ({"arch": "9.0", "cuda": "12.6.85"}, {"arch": "8.9", "cuda": "12.6.85"}),
    "blackwell-cuda": ({"arch": "12.0", "cuda": "12.6"}, {"arch": "12.0", "cuda": "12.8"}),
    "sm107-cuda": ({"arch": "10.7", "cuda": "13.3"}, {"arch": "10.7", "cuda": "13.4"}),
    "ada-hopper-cuda": ({"arch": "8.9", "cuda": "11.7"}, {"arch": "8.6", "cuda": "11.7"}),
    "old-archs-cuda13": ({"arch": "7.0", "cuda": "13.0"}, {"arch": "7.5", "cuda": "13.0"}),
    "host-python": ({"python": "3.9.13"}, {"python": "3.10.0"}),
    "driver-cuda13": ({"driver": "577.00", "cuda": "13.0"}, {"driver": "580.88", "cuda": "13.0"}),
    "driver-cuda12": ({"driver": "527.41", "cuda": "12.8"}, {"driver": "528.33", "cuda": "12.8"}),
    "driver-cuda11": ({"driver": "451.82", "cuda": "11.8"}, {"driver": "452.39", "cuda": "11.8"}),
}


def ids(facts: dict[str, str]) -> set[str]:
    return {rule.id for rule in compat.applicable_rules(compat.load_compat().rules, facts)}


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in compat.load_compat().rules} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    breaks, holds = CASES[name]
    assert name in ids(breaks)
    assert name not in ids(holds)
    for fact in breaks:  # a fact that is not known, or is nonsense, breaks nothing
        assert name not in ids({k: v for k, v in breaks.items() if k != fact})
        assert name not in ids({**breaks, fact: "unknown; rm -rf"})


def test_errors_come_first() -> None:
    found = compat.applicable_rules(
        compat.load_compat().rules,
        {"msvc": "14.50.1", "cuda": "13.0", "torch": "2.13", "arch": "7.0"},
    )
    levels = [rule.level for rule in found]
    assert levels == sorted(levels)
    assert {"error", "warning"} == set(levels)


def test_a_slip_in_a_facts_name_is_no_good_news() -> None:
    with pytest.raises(ValueError, match="msvcc"):
        compat.applicable_rules(compat.load_compat().rules, {"msvcc": "14.50"})


@given(st.dictionaries(st.sampled_from(compat.FACTS), st.text(max_size=80)))
def test_any_text_is_judged_without_an_exception(facts: dict[str, str]) -> None:
    known = {k: v for k, v in facts.items() if versions.parse_release(v)}
    assert ids(facts) == ids(known)


@pytest.mark.parametrize("arch", archs.KNOWN)
def test_capability(arch: str) -> None:
    number = archs.compute_capability(arch)
    assert number.replace(".", "") == arch.rstrip("af")
    assert number.count(".") == 1


@pytest.mark.parametrize("arch", [a for a in archs.KNOWN if a not in ("53", "62", "72", "88")])
@pytest.mark.parametrize("cuda", ["11.8", "12.4", "12.6", "12.8", "13.0"])
def test_rules_agree_with_the_table_of_architectures(arch: str, cuda: str) -> None:
    """An arch that a CUDA release refuses for good is an error here too, and the other way."""
    later = archs.KNOWN[arch].first in ((11, 8), (12, 9), (12, 0), (13, 0))
    refused = arch not in archs.supported_archs(cuda)
    errors = {
        rule.id
        for rule in compat.applicable_rules(
            compat.load_compat().rules, {"arch": archs.compute_capability(arch), "cuda": cuda}
        )
        if rule.level == "error"
    }
    if errors:
        assert refused
    elif refused:  # only finer steps than the rules have: family targets, sm_103, sm_110
        assert later or archs.KNOWN[arch].gone


def test_capability_of_nonsense() -> None:
    with pytest.raises(ConfigError, match="sm_x"):
        archs.compute_capability("sm_x")


@pytest.mark.parametrize(
    ("build", "server", "name"),
    [
        (17763, True, "Windows Server 2019"),
        (20348, True, "Windows Server 2022"),
        (26100, True, "Windows Server 2025"),
        (19045, False, "Windows 10 22H2"),
        (26100, False, "Windows 11"),
        (14393, True, None),
        (19044, False, None),
        (20348, False, None),
    ],
)
def test_releases_of_windows(build: int, server: bool, name: str | None) -> None:
    found = compat.load_compat().release(build, server=server)
    assert (found.name if found else None) == name


RULE: dict[str, Any] = {
    "id": "a",
    "when": {"cuda": ">=12"},
    "level": "error",
    "says": "it does not work.",
    "hint": "do something",
    "source": "https://example.org/1",
    "date": "2026-11-28",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"when": {}}, "rules.0.when"),
        ({"when": {"cuda": ""}}, "empty range"),
        ({"when": {"cuda": ">=13,<12"}}, "contradicts itself"),
        ({"when": {"cuda": "12 or so"}}, "PEP 440"),
        ({"when": {"gcc": ">=12"}}, "rules.0.when.gcc"),
        ({"level": "ok"}, "rules.0.level"),
        ({"says": "  "}, "rules.0.says"),
        ({"hint": ""}, "rules.0.hint"),
        ({"source": "somewhere"}, "rules.0.source"),
        ({"date": "lately"}, "rules.0.date"),
        ({"severity": 1}, "rules.0.severity: unknown key"),
        ({"id": "b"}, ""),
    ],
)
def test_wrong_rules_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    whole = yaml.safe_load(compat.COMPAT_FILE.read_text("utf-8"))
    path = tmp_path / "compat.yaml"
    path.write_text(yaml.safe_dump(whole | {"rules": [RULE | change]}))
    if not said:
        assert [rule.id for rule in compat.load_compat(path).rules] == ["b"]
        return
    with pytest.raises(ConfigError) as caught:
        compat.load_compat(path)
    assert str(path) in caught.value.message
    assert said in caught.value.message


def test_doubles_and_empty_files(tmp_path: Path) -> None:
    whole = yaml.safe_load(compat.COMPAT_FILE.read_text("utf-8"))
    path = tmp_path / "compat.yaml"
    for text, said in (
        (yaml.safe_dump(whole | {"rules": [RULE, RULE]}), "same id: a"),
        (yaml.safe_dump(whole | {"rules": []}), "rules"),
        (yaml.safe_dump(whole | {"toolkit_drivers": {"12.8": "new"}}), "toolkit_drivers.12.8"),
        ("rules: [", "compat.yaml"),
        ("", "top level"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            compat.load_compat(path)
