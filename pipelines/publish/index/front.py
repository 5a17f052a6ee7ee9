"""The index's main page, with a script that chooses a wheel, and a page for each project.

They load nothing. Their policy allows only their style and script, by hash, so that a browser runs
nothing else, whatever is in the catalogue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from packaging.version import Version

from pipelines.core.architectures.archs import compute_capability
from pipelines.core.architectures.gpus import load_gpu_table
from pipelines.core.versions import python_order
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.index.rows import Row, sorted_capabilities
from pipelines.publish.which.answer import FORMS, format_for_shell, pip_installs, uv_installs
from pipelines.publish.which.joining import WHICH
from pipelines.reports.html import render_template

#: The style sheets of an index.
_STYLES = ("report.css", "index.css")
#: Minor versions of Python 3 to offer for a wheel for all later ones.
_OLDEST, _NEWEST = 9, 15
_LEVELS = 12  # shown in full; a project's page has all of them


def render_main_page(catalogue: Catalogue, table: Sequence[Row], places: Sequence[str]) -> str:
    """The page; ``table`` are the plain wheels, the preferred ones first."""
    return render_template(
        "index.html.j2",
        *_STYLES,
        script="index.js",
        rows=table,
        places=places,
        which=WHICH,
        preview=catalogue.preview,
        variants=len(catalogue.wheels) - len(table),
        untested=sum(row.wheel.smoke.verdict == "untested" for row in table),
        projects=list(dict.fromkeys(row.project for row in table)),
        platforms=_platform_choices(table),
        pythons=_python_choices(table),
        cudas=sorted({row.wheel.cuda for row in table} - {""}, key=Version, reverse=True),
        torches=_torch_choices(table),
        levels=sorted({row.wheel.evidence for row in table})[:_LEVELS],
        cards=[(gpu.show, gpu.capability) for gpu in load_gpu_table().gpus],
        capabilities=_capability_choices(table),
        forms=install_command_forms(),
    )


def render_project_pages(catalogue: Catalogue, table: Sequence[Row]) -> dict[str, bytes]:
    """The page of each project by its path: the test evidence of each wheel, and how to verify it.

    Missing evidence is stated, never omitted. ``table`` are the plain wheels.
    """
    variants: dict[str, list[Wheel]] = defaultdict(list)
    for wheel in catalogue.wheels:
        if wheel.name.label:
            variants[wheel.made_from or ""].append(wheel)
    projects: dict[str, list[Row]] = defaultdict(list)
    for row in table:
        projects[row.project].append(row)
    return {
        f"about/{project}.html": render_template(
            "about.html.j2",
            *_STYLES,
            script="about.js",
            preview=catalogue.preview,
            project=project,
            rows=rows,
            variants={row.ident: variants[row.wheel.sha256] for row in rows},
            up=_up,
            named=sorted_capabilities,
        ).encode()
        for project, rows in projects.items()
    }


def _up(url: str) -> str:
    """A link from the project's page."""
    return url if "://" in url else f"../{quote(url)}"


def install_command_forms() -> list[tuple[str, str, str, str]]:
    """Install commands for each shell, with placeholders and their replacements.

    The page's script fills in the choices.
    """
    pip = pip_installs("~start~", ["~url~"], "~torch~")
    uv = uv_installs(["uv", "add"], "~index~", "~project~==~version~", "~torch~")
    made = [(name, format_for_shell(pip, name), *form[2:]) for name, form in FORMS.items()]
    return [*made, ("a uv project", format_for_shell([uv], "cmd"), "", "")]


def _platform_choices(table: Sequence[Row]) -> list[str]:
    platforms = {platform for row in table for platform in row.platforms.split()}
    return sorted(platforms - {"any"}) or ["win_amd64"] * bool(platforms)


def _python_choices(table: Sequence[Row]) -> list[str]:
    """Every Python version with a wheel, within the common range.

    Free-threaded ones are included if a wheel is for a single one of them.
    """
    minors = {minor for row in table for minor in row.minors}
    named = max((row.minors[-1] for row in table if row.minors and not row.later), default=0)
    own = [f"3.{minor}" for minor in sorted(minors) if _OLDEST <= minor <= max(named, _NEWEST)]
    free = {minor for row in table for minor in row.lockless if len(row.lockless) == 1}
    return sorted([*own, *(f"3.{minor}t" for minor in free)], key=python_order)


def _torch_choices(table: Sequence[Row]) -> list[str]:
    """Versions of torch's wheels for these versions and CUDA."""
    pairs = {(row.wheel.torch, row.wheel.cuda) for row in table if row.wheel.torch}
    ordered = sorted(
        pairs, key=lambda pair: [Version(version or "0") for version in pair], reverse=True
    )
    return [f"{torch}.0+cu{cuda.replace('.', '')}" if cuda else torch for torch, cuda in ordered]


def _capability_choices(table: Sequence[Row]) -> list[str]:
    """Compute capabilities of all known cards and of all wheels."""
    archs = {arch for row in table for arch in (*row.wheel.sass, *row.wheel.ptx)}
    known = {gpu.capability for gpu in load_gpu_table().gpus}
    return sorted(known | {compute_capability(arch) for arch in archs}, key=Version)
