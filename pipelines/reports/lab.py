"""Which external wheel was correct on which GPU: signed records, and a page of them.

A record is of one wheel, GPU, driver and suite, and is a file by the name of these four: a later
test replaces it, after both were compared. It has what the run's sealed record says, and is signed
with the same key, so that it can be passed on without the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from packaging.utils import parse_wheel_filename
from pydantic import AfterValidator, ValidationError

from pipelines.core.errors import SmokeError
from pipelines.core.evidence import Evidence
from pipelines.core.files import disk_errors, write_atomic
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model, first_problem
from pipelines.record.prebuilt import Sha256
from pipelines.record.results import PrebuiltResult, Seconds, SmokeResult
from pipelines.record.run import Run
from pipelines.record.seal import is_signed, load_or_create_sealer
from pipelines.reports.compare import Difference, compare_numbers, recorded_number_texts
from pipelines.reports.html import render_template
from pipelines.reports.levels import evidence_of
from pipelines.reports.load import load_view, read_smoke
from pipelines.reports.model import Case

#: Names of numbers that differ from one run to the next.
_TIME = re.compile(r"second|per s\b", re.IGNORECASE)
_ERROR = re.compile(r"error|difference", re.IGNORECASE)


def _validate_number_text(text: str) -> str:
    float(text)
    return text


class LabRecord(Model):
    """The result of one suite with one wheel on one GPU with one driver."""

    schema_version: Literal[1] = 1
    project: str
    version: str
    file: str
    sha256: Sha256
    gpu: str
    capability: str
    driver: str
    suite: str
    suite_sha256: Sha256
    companions: tuple[str, ...] = ()
    """What was installed with it by name."""
    system: str
    evidence: Evidence | None
    passed: bool
    why: str = ""
    """The first failure."""
    numbers: dict[str, Annotated[str, AfterValidator(_validate_number_text)]]
    seconds: Seconds
    """Of all its cases."""
    run: str
    created: str
    recorded_by: str = ""
    """Who has recorded the run, unless it is who signs."""
    sealer: str = ""
    signature: str = ""

    @property
    def name(self) -> str:
        """Of its file."""
        words = (self.sha256[:16], self.gpu, self.driver, self.suite_sha256[:16])
        return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word) for word in words) + ".json"

    @property
    def text(self) -> str:
        """What is signed."""
        return self.model_dump_json(exclude={"signature"})

    @property
    def worst(self) -> str:
        """The largest error that it has measured, of either sign; empty: it measured none."""
        errors = [text for name, text in self.numbers.items() if _ERROR.search(name)]
        size = {text: abs(float(text)) for text in errors}
        return max(errors, key=lambda text: (math.isnan(size[text]), size[text]), default="")


def _first_error_line(case: Case) -> str:
    """The first line of an error, as pytest prints it; what the suite has printed follows there."""
    errors = (text[1:].strip() for text in case.detail.splitlines() if text.startswith("E "))
    return safe_line(next(errors, case.message), 300)


def lab_record_of_run(run: Run, suite_sha256: str) -> LabRecord | None:
    """The signed record of a run; ``None`` if its suite came to no GPU, or to no verdict.

    A run may fail without a failed case: as the driver or the GPU was another than the machine's.
    Raises :class:`SmokeError` for a suite that passed without having used a GPU.
    """
    facts, test, taken = run.facts(), run.result(SmokeResult), run.result(PrebuiltResult)
    suite, _ = read_smoke(run.path, test)
    if suite is None or test is None or not test.gpus or taken is None or taken.taken is None:
        return None
    view, driver = load_view(run), safe_line(suite.properties.get("driver_version"), 40)
    passed = view.verdict == "passed"
    failed = [case for case in suite.cases if case.outcome in ("failed", "error")]
    if not (passed or failed) or (test.bridge and test.bridge.driver != driver):
        return None
    if passed and suite.properties.get("gpu_cases", "0") == "0":
        raise SmokeError(
            f"{test.script} passed, but used no GPU: it is not recorded",
            hint="Is it the right suite for this wheel? See docs/lab.md.",
        )
    project, version, _, _ = parse_wheel_filename(taken.taken.file)
    signer = load_or_create_sealer()
    record = LabRecord(
        project=project,
        version=str(version),
        file=taken.taken.file,
        sha256=taken.taken.sha256,
        gpu=", ".join(dict.fromkeys(safe_line(gpu.name, 80) for gpu in test.gpus)),
        capability=", ".join(dict.fromkeys(gpu.capability for gpu in test.gpus)),
        driver=driver,
        suite=test.script,
        suite_sha256=suite_sha256,
        companions=taken.company.companions if taken.company else (),
        system=safe_line(test.system, 80),
        evidence=evidence_of(facts, test),
        passed=passed,
        why="" if passed else _first_error_line(failed[0]),
        numbers=recorded_number_texts(view),
        seconds=sum(case.seconds for case in suite.cases),
        run=run.id,
        created=facts.created,
        recorded_by=run.recorded_by,
        sealer=signer.identity,
    )
    return record.model_copy(update={"signature": signer.sign(record.text)})


def digest_of(suite: Path) -> str:
    """The sha256 of a suite: of the file, or of the names and texts in the directory."""
    files = {
        name: path.read_text("utf-8", "surrogateescape")
        for path in suite.rglob("*")
        if path.is_file()
        and not re.search(r"(^|/)(\.|__pycache__/)", name := path.relative_to(suite).as_posix())
    }
    data = json.dumps(files, sort_keys=True).encode() if files else suite.read_bytes()
    return hashlib.sha256(data).hexdigest()


def read_records(folder: Path) -> tuple[list[LabRecord], list[str]]:
    """Those whose signature is right, the latest first; and why each other file is none."""
    found: list[LabRecord] = []
    wrong: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = LabRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            wrong.append(f"{path.name}: {safe_line(first_problem(error), 200)}")
            continue
        if not is_signed(record.sealer, record.signature, record.text):
            wrong.append(f"{path.name} was changed after it was signed")
        else:
            found.append(record)
    return sorted(found, key=lambda record: record.created, reverse=True), wrong


def lab_record_differences(record: LabRecord, known: Iterable[LabRecord]) -> Iterator[Difference]:
    """What has moved since the latest record of this project and suite on such a GPU.

    Those of other keys are not asked: whoever signs may write any date and number.
    """
    same = ("project", "suite_sha256", "gpu", "sealer")
    alike = [o for o in known if all(getattr(o, key) == getattr(record, key) for key in same)]
    if not alike:
        return
    before = max(alike, key=lambda other: other.created)
    if before.passed != record.passed:
        was, now = ("passed" if one.passed else "failed" for one in (before, record))
        yield Difference("verdict", before.file, was, now, "better" if record.passed else "worse")
    for one in compare_numbers(before.numbers, record.numbers):
        if one.judgement == "worse" or not _TIME.search(one.subject):
            yield one


def store_lab_record(record: LabRecord, folder: Path) -> Path:
    """Write it, and the page of all that are there; where that is."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / record.name, record.model_dump_json(indent=1).encode())
        records, wrong = read_records(folder)
        own = record.sealer
        page = render_template("lab.html.j2", "report.css", records=records, wrong=wrong, own=own)
        write_atomic(folder / "index.html", page.encode())
    return folder / "index.html"
