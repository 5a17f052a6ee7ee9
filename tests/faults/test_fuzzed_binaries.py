"""Ten thousand damaged binaries of each kind: read whole, or said not to be; in time and memory."""

from __future__ import annotations

import gc
import random
import resource
import struct
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fatbins import ELF, PTX, container
from hypothesis import given, settings
from hypothesis import strategies as st
from pes import dll, msvc

from pipelines.wheels.fatbin import inventory
from pipelines.wheels.linker import RUN_TIMES
from pipelines.wheels.pe import PeFacts, exports_of, read_pe

IMPORTS = {"own.dll": ["f", "#7", "?g@@YAXXZ"], "c10.dll": ["h" * 300], "KERNEL32.dll": ["Sleep"]}
LATE = {"late.dll": ["k", "#9"]}
WHOLE = msvc(imports=IMPORTS, exports=["PyInit__C", "a", "b"], late=LATE)
FACTS = read_pe(WHOLE)
HEADERS = WHOLE.index(b"PE\0\0") + 24 + 240 + 40
CODE = container((ELF, "75", 40), (PTX, "90a", 40), cuda="12.8") + container((ELF, "120", 16))

#: Numbers that readers trip over: ends of ranges, addresses of the one section, many of a thing.
NUMBERS = (0, 1, 0x1000, 0x10FF, 0xFFF, 0x2000, 200_001, 10_000_000, 0x7FFFFFFF, 1 << 31, 2**32 - 1)
#: What is done to a binary follows from one number: drawing each of its parts takes longer by far.
SEEDS = st.integers(0, 2**64 - 1)
MANY = settings(max_examples=10_000, deadline=timedelta(seconds=5), database=None)
SOME = settings(MANY, max_examples=500)


@pytest.fixture(autouse=True, scope="module")
def frugal() -> Iterator[None]:
    """A million cases of these would still fit into the memory of a small machine."""
    # pefile collects all garbage, for 0.1 s, whenever it refuses a file.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda *_: 0)
        yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    sys.stdout.write(f"\npeak {peak >> 10} MiB")
    assert peak < 1 << 20


def changed(data: bytes, seed: int) -> bytes:
    """Other numbers at up to six places, each anywhere or in the headers and tables' rows."""
    chance, found = random.Random(seed), bytearray(data)
    step = chance.choice((1, 4))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange((len(data) - 4) // step) * step
        known = chance.random() < 0.7
        struct.pack_into(
            "<I", found, at, chance.choice(NUMBERS) if known else chance.getrandbits(32)
        )
    return bytes(found)


def read(data: bytes) -> PeFacts | None:
    """``None`` for what no reader takes for a binary: that is a finding of its wheel."""
    try:
        return read_pe(data)
    except Exception:
        return None


@MANY
@given(SEEDS)
def test_other_numbers_anywhere(seed: int) -> None:
    facts = read(changed(WHOLE, seed))
    if facts is not None:
        for names in (facts.needs, facts.late):
            assert names is None or all(library and name for library, name in names)
        told = facts.imports and facts.linked and facts.linked.runtimes
        assert all(name.startswith(RUN_TIMES) for name in told or ())


@MANY
@given(SEEDS)
def test_a_binary_that_was_cut_off(seed: int) -> None:
    """No table is shorter than it was: it is all there, or it is not read."""
    chance = random.Random(seed)
    at = chance.randrange(len(WHOLE) if seed % 2 else HEADERS)
    facts = read(WHOLE[:at] + chance.randbytes(chance.choice((0, 0, 8, 600))))
    if facts is not None and at >= HEADERS:  # behind a header that was cut there is another one
        assert facts.needs in (None, FACTS.needs)
        assert facts.late in (None, FACTS.late)
        assert facts.exports in (None, FACTS.exports)


def test_a_header_that_was_cut_off() -> None:
    """Of each length: pefile takes what is left for a header without tables."""
    for at in range(HEADERS):
        assert read(WHOLE[:at]) is None, at


@MANY
@given(SEEDS)
def test_noise_in_place_of_headers(seed: int) -> None:
    chance = random.Random(seed)
    start = WHOLE.index(b"PE\0\0") + chance.randrange(400)
    noise = chance.randbytes(chance.randrange(300))
    exports_of(WHOLE[:start] + noise + WHOLE[start + len(noise) :])


@MANY
@given(SEEDS)
def test_fat_binaries(seed: int) -> None:
    data = changed(CODE, seed)
    found = inventory(data[: seed % len(data)] if seed % 3 else data)
    assert all(one.sass or one.ptx or one.other or not one.intact for one in found.containers)


NAMES = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1).filter(
    lambda name: name[0] != "#"
)
TABLES = st.dictionaries(
    st.from_regex(r"[a-z0-9_]{1,20}\.dll", fullmatch=True),
    st.lists(NAMES | st.integers(0, 0xFFFF).map(lambda n: f"#{n}"), min_size=1, max_size=5),
    max_size=4,
)


@SOME
@given(TABLES, TABLES, st.sets(NAMES, max_size=8))
def test_what_was_written_is_read(
    imports: dict[str, list[str]], late: dict[str, list[str]], exports: set[str]
) -> None:
    facts = read_pe(dll(imports, sorted(exports), late=late))
    for wanted, found in ((imports, facts.needs), (late, facts.late)):
        assert found == tuple(
            sorted({(lib, name) for lib, names in wanted.items() for name in names})
        )
    numbers = {f"#{n + 1}" for n in range(len(exports))}
    assert facts.exports == frozenset(exports | numbers)
