"""What a host is wanted to have: ``pipelines/resources.yaml`` with the lock's pins filled in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.config import Recipe, explain
from pipelines.errors import ConfigError
from pipelines.lock import ToolchainLock

RESOURCES_FILE = Path(__file__).resolve().parent.parent / "resources.yaml"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Resource(_Model):
    id: str
    why: str


class Registry(_Resource):
    """A registry value."""

    kind: Literal["registry"]
    key: str
    name: str
    value: int | str


class Environment(_Resource):
    """A variable of the machine."""

    kind: Literal["environment"]
    name: str
    value: str


class Directory(_Resource):
    """A writable directory."""

    kind: Literal["directory"]
    path: str


class Archive(_Resource):
    """Archives of the lock, unpacked into a directory."""

    kind: Literal["archive"]
    path: str
    tools: tuple[str, ...]
    strip: str
    proof: str


class Files(_Resource):
    """Files of the lock, as they are."""

    kind: Literal["files"]
    path: str
    tools: tuple[str, ...]


class Packages(_Resource):
    """Python packages of the host's Python."""

    kind: Literal["packages"]
    tools: tuple[str, ...]


Resource = Annotated[
    Registry | Environment | Directory | Archive | Files | Packages, Field(discriminator="kind")
]


class Layout(_Model):
    """Where things are on a host."""

    build_root: str
    temp: str
    wheels: str
    uv: str
    cuda: str


class Resources(_Model):
    """``resources.yaml``."""

    layout: Layout
    resources: tuple[Resource, ...]


@dataclass(frozen=True)
class Wanted:
    """One resource as the host is asked for it."""

    id: str
    why: str
    spec: dict[str, Any]
    uploads: dict[str, str]
    """Tool of the lock -> path on the host: what must be there before it is applied."""

    @property
    def summary(self) -> str:
        """The wanted state in a few words, for the table."""
        spec = self.spec
        match spec["kind"]:
            case "registry" | "environment":
                return f"{spec['name']} = {spec['value']}"
            case "directory":
                return str(spec["path"])
            case "archive":
                pins = [
                    f"{a['name'].removeprefix('nvidia-')} {a['version']}" for a in spec["archives"]
                ]
                return f"{spec['path']}: {', '.join(pins)}"
            case "files":
                return f"{spec['path']}: {len(spec['files'])} pinned files"
            case _:
                return ", ".join(f"{n} {v}" for n, v in spec["packages"].items())


def load_resources(path: Path = RESOURCES_FILE) -> Resources:
    """Read the file; :class:`ConfigError` names the key that is wrong."""
    try:
        return Resources.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except ValidationError as error:
        raise ConfigError(explain(path, error), advice="See pipelines/plan/resources.py.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}", advice="Restore it from git.") from None


def wanted_resources(resources: Resources, recipe: Recipe, lock: ToolchainLock) -> list[Wanted]:
    """Every resource with its pins, in order."""
    lists = {"{recipe.build}": recipe.build_requires, "{recipe.test}": recipe.test_requires}
    layout = resources.layout

    def tools(names: tuple[str, ...]) -> list[str]:
        return list(dict.fromkeys(t for name in names for t in lists.get(name, (name,))))

    def pins(names: tuple[str, ...], folder: str, strip: str = "") -> list[dict[str, Any]]:
        rows = []
        for name in tools(names):
            tool = lock.tool(name)
            row = {"name": name, "version": tool.version, "sha256": tool.sha256}
            row["file"] = rf"{folder}\{tool.file}"
            rows.append({**row, "strip": strip.format(version=tool.version)} if strip else row)
        return rows

    wanted = []
    for resource in resources.resources:
        spec: dict[str, Any] = resource.model_dump(exclude={"id", "why", "tools", "strip"})
        uploads: dict[str, str] = {}
        if isinstance(resource, Archive):
            spec["archives"] = pins(resource.tools, layout.temp, resource.strip)
            uploads = {row["name"]: row["file"] for row in spec["archives"]}
        elif isinstance(resource, Files):
            spec["files"] = pins(resource.tools, resource.path)
            uploads = {row["name"]: row["file"] for row in spec["files"]}
        elif isinstance(resource, Packages):
            spec["packages"] = {name: lock.tool(name).version for name in tools(resource.tools)}
            spec |= {"installer": layout.uv, "wheels": layout.wheels}
        wanted.append(Wanted(resource.id, resource.why, spec, uploads))
    return wanted
