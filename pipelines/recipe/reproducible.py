"""What a build is given for ``reproducible: true``: ``reproducible.yaml`` for one tool set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data
from pipelines.core.versions import release_in_range
from pipelines.recipe.archmap import Variable

PROFILE_FILE = Path(__file__).resolve().with_name("reproducible.yaml")


class Settings(Model):
    """Variables of a build's environment."""

    variables: dict[Variable, str] = Field(default={})
    """Set, whatever else is said."""
    flags: dict[Variable, str] = Field(default={})
    """Put before what the recipe says."""
    cached: dict[Variable, str] | None = None
    """With a compile cache: what of these flags is left out then. ``None``: there is none."""


class OfToolSet(Settings):
    """And what is given with some releases of CUDA alone."""

    cuda: dict[str, Settings] = Field(default={})
    """By the releases of CUDA, such as ``>=13.0,<13.1``."""


class Profile(Model):
    """``reproducible.yaml``."""

    everywhere: Settings
    cuda: dict[str, Settings]
    """By the releases of CUDA, such as ``>=12.9``."""
    tool_sets: dict[str, OfToolSet]
    """By :attr:`pipelines.core.toolsets.Toolset.name`."""


def load_profile(path: Path = PROFILE_FILE) -> Profile:
    """Read the file; :class:`ConfigError` names the key that is wrong."""
    return read_data(path, Profile)


def reproducible_environment(
    environment: Mapping[str, str], tool_set: str, cuda: str, places: Mapping[str, str]
) -> dict[str, str]:
    """``environment`` of a build with a tool set and a release of CUDA, with what makes it so.

    ``places`` are the host's directories that texts of the profile name in braces;
    :class:`ConfigError` for one with a space, at which compilers would end the flag.
    """
    profile = load_profile()
    made = dict(environment)
    own = profile.tool_sets[tool_set]
    known, own_known = (
        [settings for releases, settings in by_release.items() if release_in_range(cuda, releases)]
        for by_release in (profile.cuda, own.cuda)
    )
    for settings in (profile.everywhere, *known, own, *own_known):
        for name, text in settings.flags.items():
            flags = text
            for place, path in places.items():
                if f"{{{place}}}" in flags and " " in path:
                    raise ConfigError(
                        f"reproducible: true: {path} has a space, which compiler flags cannot have",
                        hint="Use an environment and a CUDA toolkit without one in their paths.",
                    )
                flags = flags.replace(f"{{{place}}}", path)
            made[name] = f"{flags} {made[name]}" if name in made else flags
        made |= settings.variables
    return made


def with_cache(tool_set: str) -> Mapping[str, str] | None:
    """What a compile cache removes from each variable; ``None``: no cache is possible."""
    return load_profile().tool_sets[tool_set].cached
