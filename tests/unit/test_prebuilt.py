"""Wheels of others: which one fits, and what has to be shown before it is used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fatbins import ELF, PTX, container
from wheels import FILES, INFO, METADATA, NAME, fatbin, pe, wheel

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.target import Target
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers, obtain_offer
from pipelines.plan.prebuilt.decide import (
    apply_strategy,
    audit_prebuilt_wheel,
    match_offers,
    platforms_of,
    unstated_versions,
)
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.toolchain import lock
from pipelines.toolchain.sources import Source
from pipelines.wheels.kernels import unsupported_archs
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.tags import wheel_tags

FLASH = load_recipe("flash-attn", version="2.8.3.post2")
CELL = Target(python="3.12", torch="2.8", cuda="12.8", archs=parse_arch_list("89"))


def offer(tail: str, version: str = "2.8.3.post2") -> Offer:
    return Offer(f"flash_attn-{version}{tail}.whl", "/nowhere")


@pytest.mark.parametrize(
    "tail",
    [
        "+cu128torch2.8-cp312-cp312-win_amd64",
        "+cu128torch2.8.0cxx11abiFALSE-cp312-cp312-win_amd64",
        "+cu12torch2.8cxx11abiFALSE-cp312-cp312-win_amd64",  # Dao-AILab states the major alone
        "-cp312-cp312-win_amd64",
        "+cu128torch2.8-cp39-abi3-win_amd64",
        "+cu128torch2.8-py3-none-win_amd64",
    ],
)
def test_what_fits(tail: str) -> None:
    assert match_offers(FLASH, CELL, [offer(tail)]).offer == offer(tail)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        ("+cu128torch2.8-cp311-cp311-win_amd64", "tags cp311"),
        ("+cu128torch2.8-cp312-cp312-linux_x86_64", "tags"),
        ("+cu128torch2.8-cp313-abi3-win_amd64", "tags"),
        ("+cu128torch2.7-cp312-cp312-win_amd64", "torch 2.7, expected 2.8"),
        ("+cu128torch2.80-cp312-cp312-win_amd64", "torch 2.80"),
        ("+cu126torch2.8-cp312-cp312-win_amd64", "CUDA 126, expected 12.8"),
        ("+cu13torch2.8-cp312-cp312-win_amd64", "CUDA 13, expected 12.8"),
        ("+cu128torch2.8.sandbox-cp312-cp312-win_amd64", "built in a sandbox"),
        ("+cu128torch2.8.sandbox.msvc-cp312-cp312-win_amd64", "built in a sandbox"),
        # What seed wheels were called; no installer takes such a name.
        ("-cp312-cp312-win_amd64-cuda12.3-sm89", "not the name of a wheel"),
    ],
)
def test_what_does_not_fit(tail: str, why: str) -> None:
    found = match_offers(FLASH, CELL, [offer(tail)])
    assert found.offer is None
    assert why in found.refused[offer(tail).file]


def test_versions_and_names() -> None:
    tail = "+cu128torch2.8-cp312-cp312-win_amd64"
    older, other = offer(tail, "2.8.3"), Offer(f"xformers-2.8.3.post2{tail}.whl", "x")
    assert match_offers(FLASH, CELL, [older, other]).refused == {
        older.file: "version 2.8.3, expected 2.8.3.post2",
        other.file: "another project, xformers",
    }


def test_the_one_that_says_most_is_taken() -> None:
    vague = offer("-cp312-cp312-win_amd64")
    stated = offer("+cu128torch2.8-cp312-cp312-win_amd64")
    general = offer("+cu128torch2.8-cp39-abi3-win_amd64")
    assert match_offers(FLASH, CELL, [general, vague, stated]).offer == stated


def test_tags_of_a_python() -> None:
    names = [str(tag) for tag in wheel_tags("3.12")]
    assert names[0] == "cp312-cp312-win_amd64"
    assert {"cp39-abi3-win_amd64", "py3-none-any"} < {*names}
    assert "cp313-cp313-win_amd64" not in names


# -- strategies -----------------------------------------------------------------------------------


def with_strategy(**keys: object) -> Recipe:
    return FLASH.model_copy(update=keys)


def test_strategies(tmp_path: Path) -> None:
    name = "flash_attn-2.8.3.post2+cu128torch2.8-cp312-cp312-win_amd64.whl"
    (tmp_path / name).write_bytes(b"x")
    here = (str(tmp_path),)
    assert apply_strategy(FLASH, CELL).action == "build"
    for strategy in ("prebuilt", "prebuilt-then-build"):
        found = apply_strategy(with_strategy(strategy=strategy, prebuilt=here), CELL)
        assert found.action == "prebuilt"
        assert found.offer is not None
        assert found.offer.path == tmp_path / name
    skipped = apply_strategy(with_strategy(strategy="skip", skip="use xformers"), CELL)
    assert (skipped.action, skipped.why) == ("skip", "use xformers")


def test_when_nothing_fits(tmp_path: Path) -> None:
    (tmp_path / "flash_attn-2.8.2-cp312-cp312-win_amd64.whl").touch()
    here = (str(tmp_path),)
    found = apply_strategy(with_strategy(strategy="prebuilt-then-build", prebuilt=here), CELL)
    assert (found.action, found.missed) == ("build", True)
    assert not apply_strategy(FLASH, CELL).missed
    assert found.why.startswith("no prebuilt wheel fits cp312-torch2.8-cu128: flash_attn-2.8.2")
    assert "version 2.8.2" in found.why
    with pytest.raises(ConfigError, match=r"fits a cell: .*version 2\.8\.2") as caught:
        apply_strategy(with_strategy(strategy="prebuilt", prebuilt=here), CELL, name="a cell")
    assert "strategy: build" in caught.value.hint


@pytest.mark.parametrize("place", ["/nowhere/at/all", "http://plain.example/simple"])
def test_places_that_cannot_be_read(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list_wheel_offers(place, "flash-attn")
    assert caught.value.hint


def test_a_name_that_leads_elsewhere_is_refused() -> None:
    names = ["/../../evil", "\\..\\evil", "\n::error", "\x00"]
    for name in names:
        bad = offer(f"-cp312-cp312-win_amd64.{name}")
        assert "characters" in match_offers(FLASH, CELL, [bad]).refused[bad.file]


def test_the_next_best_are_kept_in_order(tmp_path: Path) -> None:
    tails = ["", "+cu12torch2.8", "+cu128torch2.8"]
    for tail in tails:
        (tmp_path / f"flash_attn-2.8.3.post2{tail}-cp312-cp312-win_amd64.whl").touch()
    found = apply_strategy(with_strategy(strategy="prebuilt", prebuilt=(str(tmp_path),)), CELL)
    assert found.offer is not None
    assert "torch" in found.offer.file
    assert found.others[-1].file == "flash_attn-2.8.3.post2-cp312-cp312-win_amd64.whl"
    assert unstated_versions(found.offer, CELL) == []
    assert unstated_versions(found.others[-1], CELL) == ["torch", "CUDA"]


def test_wheels_of_this_machine_are_for_no_windows() -> None:
    here = platforms_of(windows=False)
    linux = offer("+cu128torch2.8-cp312-cp312-linux_x86_64")
    assert match_offers(FLASH, CELL, [linux], ["linux_x86_64"]).offer == linux
    assert match_offers(FLASH, CELL, [linux]).offer is None
    assert "win_amd64" not in here
    assert platforms_of(windows=True) == ("win_amd64",)


def test_a_crate_is_not_to_be_had_prebuilt() -> None:
    with pytest.raises(ConfigError, match="only wheels"):
        apply_strategy(
            load_recipe("candle-flash-attn").model_copy(update={"strategy": "prebuilt"}), CELL
        )


# -- proof ----------------------------------------------------------------------------------------


def offered(path: Path, sha256: str | None = None) -> Offer:
    return Offer(path.name, str(path), sha256, path.stat().st_size)


def wrong(path: Path, torch: str = "2.8", cuda: str = "13.0") -> str:
    """Why a wheel for Python 3.11 and an H100 is not used; empty: it is."""
    target = Target(python="3.11", torch=torch, cuda=cuda, archs=parse_arch_list("90"))
    try:
        audit_prebuilt_wheel(path, offered(path), target)
    except AuditError as error:
        return error.message
    return ""


def test_a_good_wheel_is_taken_with_its_sums(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest} *{NAME}\nnonsense\n")
    (found,) = list_wheel_offers(str(tmp_path), "pkg")
    assert found.sha256 == digest
    seen = audit_prebuilt_wheel(
        path, found, Target(python="3.11", cuda="13.0", archs=parse_arch_list("90"))
    )
    assert (seen.file, seen.sha256) == (NAME, digest)


def test_other_bytes_than_stated(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    with pytest.raises(AuditError, match="its sha256 is"):
        audit_prebuilt_wheel(path, offered(path, "0" * 64), CELL)


@pytest.mark.parametrize(
    ("requirement", "torch", "fits"),
    [
        (b"torch==2.8.0", "2.8", True),
        (b"torch (>=2.7)", "2.8", True),
        (b"torch==2.7.0", "2.8", False),
        (b"torch<2.8", "2.8.1", False),
        (b"numpy", "2.8", True),
    ],
)
def test_the_torch_it_requires(tmp_path: Path, requirement: bytes, torch: str, fits: bool) -> None:
    text = METADATA.replace(b"\n\n", b"\nRequires-Dist: " + requirement + b"\n\n", 1)
    path = wheel(tmp_path, {**FILES, f"{INFO}/METADATA": text})
    found = wrong(path, torch)
    assert bool(found) != fits
    assert fits or "it requires torch" in found


@pytest.mark.parametrize(
    ("local", "made", "asked", "found"),
    [
        ("cu130", "13.0", "13.0", ""),
        ("cu130", "12.8", "13.0", "CUDA 12.8 in 1/1"),
        ("cu12", "12.3", "12.8", ""),  # a name that says the major version alone
        ("cu12", "13.0", "12.8", "CUDA 13.0 in 1/1"),
        ("torch2.8", "11.8", "12.8", "CUDA 11.8 in 1/1"),
    ],
)
def test_the_tool_kit_inside_is_the_one_its_name_says(
    tmp_path: Path, local: str, made: str, asked: str, found: str
) -> None:
    module = {"pkg/_C.cp311-win_amd64.pyd": pe(tail=fatbin(cuda=made))}
    path = wheel(tmp_path, {**FILES, **module}, name=NAME.replace("cu130", local))
    said = wrong(path, "", asked)
    assert f"CUDA: found {found}" in said if found else "CUDA" not in said


@pytest.mark.parametrize(
    ("inside", "asked", "lacking"),
    [
        ("80", "80;86;89", []),  # machine code runs on newer GPUs of its major version
        ("80", "75;90", ["75", "90"]),
        ("86", "80;89", ["80"]),
        ("80 90", "89;90", ["89", "90"]),  # each container has one of them only
        ("90a", "90", []),  # the a stands for features of this very GPU
        ("100a", "103", ["103"]),
        ("100f", "103", []),
        ("P80", "80;90;120", []),
        ("P90a", "120", ["120"]),
    ],
)
def test_every_container_must_serve_every_gpu(
    tmp_path: Path, inside: str, asked: str, lacking: list[str]
) -> None:
    entries = [(PTX, a[1:], 8) if a[0] == "P" else (ELF, a, 8) for a in inside.split()]
    data = pe(tail=b"".join(container(entry) for entry in entries))
    path = wheel(tmp_path, {**FILES, "pkg/_C.cp311-win_amd64.pyd": data})
    assert unsupported_archs(inspect_wheel(path).binaries, parse_arch_list(asked)) == lacking


def test_remote_wheels_need_a_stated_hash_and_must_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def download(source: Source, target: Path, step: object) -> None:
        asked.append(source.url)
        target.write_bytes(b"a wheel")

    monkeypatch.setattr("pipelines.toolchain.obtaining.download_source", download)
    cache = lock.Cache(lock.load_lock(), tmp_path)
    place, name = "https://x.example/a.whl#sha256=0", "a-1-py3-none-any.whl"
    digest = hashlib.sha256(b"a wheel").hexdigest()
    path = obtain_offer(Offer(name, place, digest), cache)
    assert path.read_bytes() == b"a wheel"
    assert obtain_offer(Offer(name, place, digest), cache) == path
    assert asked == ["https://x.example/a.whl"]  # without the fragment, and once
    with pytest.raises(LockError, match="expected 000"):
        obtain_offer(Offer(name, place, "0" * 64), cache)
    with pytest.raises(AuditError, match="states no sha256"):
        obtain_offer(Offer(name, place), cache)
    assert obtain_offer(Offer(name, str(path)), cache) == path
