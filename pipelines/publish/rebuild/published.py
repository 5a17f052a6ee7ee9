"""What was published, as a manifest tells it: read with bounds, held against a plan of today."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import find_nearby, sha256_of
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import read_bytes
from pipelines.core.target import AXES
from pipelines.publish.provenance.statement import MANIFEST, read_manifest
from pipelines.record.materials import Kind, Materials, format_differences, join_difference_labels

#: Kinds of materials that a plan knows before the host is reached, and the source is packed.
_PLANNED: tuple[Kind, ...] = ("tool", "toolset", "variable", "python", "fixed place")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,240}\.whl")


@dataclass(frozen=True)
class Published:
    """A wheel and what it was made of, as its manifest says."""

    manifest: str
    """Where it was read."""
    file: str
    """The wheel's name."""
    sha256: str
    """As the manifest has it."""
    wheel: Path | None
    """The wheel itself, where it is here: then it has that hash."""
    axes: dict[str, str]
    """What to ask for to have it built again, the host left open."""
    materials: Materials
    made_by: str

    def with_wheel(self, wheel: Path | None) -> Published:
        """The same with the wheel; :class:`AuditError` if that is another one."""
        if wheel is not None and (found := sha256_of(wheel)) != self.sha256:
            raise AuditError(
                f"{wheel} has sha256 {found}, but {self.manifest} states {self.sha256}",
                hint="It is not the wheel that was built there, so nothing was rebuilt. Get both "
                "from their publisher.",
            )
        return replace(self, wheel=wheel)


def read_published(asked: str) -> Published:
    """What a manifest states, or the one next to a wheel.

    Raises :class:`ConfigError` for anything else, and unless it states exactly one reproducible
    wheel; :class:`AuditError` for a wheel that differs from its manifest.
    """
    path = Path(asked).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"{safe_line(asked, 200)}: no such file",
            hint=f"Name a wheel in the same directory as its {MANIFEST}, or the {MANIFEST} itself.",
        )
    if path.suffix == ".whl":
        manifest = find_nearby(path, MANIFEST)
        if manifest is None:
            raise ConfigError(
                f"{safe_line(path, 300)}: no {MANIFEST} in its directory",
                hint=f"Put the {MANIFEST} that was published with it there, or name that file.",
            )
        return published_by(manifest, str(manifest), path.name).with_wheel(path)
    published = published_by(path, str(path))
    places = (path.with_name("wheels") / published.file, path.with_name(published.file))
    return published.with_wheel(next((place for place in places if place.is_file()), None))


def published_by(manifest: Path, said: str, file: str = "") -> Published:
    """A manifest's statement on ``file``, or on its only wheel; ``said`` names the manifest.

    Raises :class:`ConfigError` as :func:`read_published` does.
    """
    try:
        document = read_manifest(read_bytes(manifest))
    except ValueError as error:
        raise ConfigError(
            f"{said} is not a valid manifest: {safe_line(error, 300)}",
            hint=f"Name the {MANIFEST} of a run, or the wheel in its directory.",
        ) from None
    if not document.inputs.reproducible or not document.inputs.materials:
        raise ConfigError(
            f"{said}: its wheel was not built with reproducible: true, so builds of it may differ",
            hint="Add it to the recipe, then build and publish again: see docs/reproducible.md.",
        )
    names = [name for name in document.wheels if file in ("", name)]
    if len(names) != 1:
        raise ConfigError(
            f"{said} has {len(names)} wheels" + (f" called {safe_line(file, 200)}" if file else ""),
            hint="Name the wheel to rebuild, or the manifest that came with it.",
        )
    (name,) = names
    if not _PLAIN.fullmatch(name):  # it becomes a file of ours, and a part of addresses
        raise ConfigError(
            f"{said}: {safe_line(name, 200)} is not a wheel name",
            hint="Get the manifest from the publisher of the wheel.",
        )
    asked_for = {axis: getattr(document.inputs, axis) for axis in AXES if axis != "host"}
    return Published(
        said,
        name,
        document.sha256(name)[0],
        None,
        {axis: text for axis, text in asked_for.items() if text},
        document.inputs.materials,
        document.made_by,
    )


def require_same_materials(
    published: Published, today: Materials, *, reached: bool = True
) -> list[str]:
    """Refuse to build from other materials; returns those in other places, a line each.

    Until the host is ``reached``, only the plan's materials are compared. Raises :class:`LockError`
    with the differences.
    """
    unlike = published.materials.differences(today)
    unlike = [one for one in unlike if reached or one.kind in _PLANNED]
    other = [one for one in unlike if one.kind != "place"]
    if other:
        raise LockError(
            f"{published.file} was built from different inputs "
            f"({join_difference_labels(other)}):\n{format_differences(other)}",
            hint=f"Use the release that built it ({safe_line(published.made_by, 80)}), with its "
            "lock, "
            "recipe and source.",
        )
    return [str(one) for one in unlike]
