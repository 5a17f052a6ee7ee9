"""The kinds of resources whose content is in ``toolchain.lock.yaml``.

``tools`` names its entries; ``*`` stands for any text, {recipe.build} and {recipe.test} for what
the recipe lists.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from pipelines.provisioning.base import Binding, DesiredResource, Layout, Proof, Resource, fill


class Archive(Resource):
    """Archives of the lock (wheel, zip, tar), unpacked into a directory."""

    kind: Literal["archive"]
    path: str
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    strip: str = ""
    """Only members below it are unpacked, without this prefix; may use {version} and {stem}."""
    proof: str
    """A file that must exist afterwards."""
    unwatched: tuple[str, ...] = ()
    """Globs of files below ``path`` that may change without being reported as damage."""
    shared: bool = False
    """Whether the directory also holds files of others, which are left alone."""
    check: Proof | None = None

    def bind(self, binding: Binding) -> DesiredResource:
        """With the files to unpack."""
        pins = binding.pinned(self.tools, binding.layout.temp)
        archives = [
            {
                **pin.row,
                "strip": self.strip.format(
                    version=pin.tool.version, stem=pin.tool.file.removesuffix(".zip")
                ),
            }
            for pin in pins
        ]
        shown = [f"{pin.entry.removeprefix('nvidia-')} {pin.tool.version}" for pin in pins]
        return self.desired(f"{self.path}: {', '.join(shown)}", pins, archives=archives)

    def program(self, layout: Layout) -> str:
        """Its proof."""
        return layout.join(self.path, self.proof)


class Files(Resource):
    """Files of the lock, unchanged."""

    kind: Literal["files"]
    path: str
    tools: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource:
        """With its files."""
        pins = binding.pinned(self.tools, self.path)
        files = [pin.row for pin in pins]
        return self.desired(f"{self.path}: {len(pins)} pinned files", pins, files=files)


class Packages(Resource):
    """Python packages of a build, in an environment that only builds with this set of them use."""

    kind: Literal["packages"]
    path: str
    """Directory of the environments."""
    tools: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource:
        """With their versions; the files are already there."""
        layout = binding.layout
        pins = binding.pinned(self.tools, layout.wheels)
        packages = {pin.package: pin.tool.version for pin in pins}
        decides = [layout.python, *sorted(f"{pin.file} {pin.tool.sha256}" for pin in pins)]
        name = hashlib.sha256("\n".join(decides).encode()).hexdigest()[:8]
        path = layout.join(self.path, name)
        return self.desired(
            ", ".join(f"{name} {version}" for name, version in packages.items()),
            packages=packages,
            files=[pin.file for pin in pins],
            installer=layout.uv,
            base=layout.python,
            path=path,
            python=layout.join(path, "Scripts", "python.exe"),
        )


class Installer(Resource):
    """A program of the lock that installs something."""

    kind: Literal["installer"]
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    """The installer first, then the files it needs in its directory when it runs."""
    arguments: tuple[str, ...]
    """May use {tool-name}, the path of a file on the host, and {arguments}, those of the lock;
    {components} becomes ``--add ID`` for each."""
    path: str = ""
    """The directory that it fills, if the pipeline manages it. The Visual Studio product found
    there afterwards must be the one of the lock."""
    detect: str
    """A glob that matches a path once it is installed; may use {toolset}."""
    registered: str = ""
    """A key whose ``Version`` must not be older than the pinned one, for installers whose files
    do not show their version."""
    success: tuple[int, ...] = (0,)
    reboot: tuple[int, ...] = (3010, 1641)
    """Exit codes that mean success but require a restart of Windows."""
    as_task: bool = False
    """Run it through the Task Scheduler: some installers refuse a network logon."""
    logs: tuple[str, ...] = ()
    """Globs of log files on the host, downloaded when it fails."""
    minutes: Annotated[float, Field(gt=0)] = 60
    check: Proof | None = None

    def bind(self, binding: Binding) -> DesiredResource:
        """With its own file and those named in its arguments."""
        pins = binding.pinned(self.tools, binding.layout.temp)
        own, paths = pins[0], {pin.entry: pin.file for pin in pins}
        adds = [word for component in own.tool.components for word in ("--add", component)]
        several = {"{components}": adds, "{arguments}": [*own.tool.arguments]}
        arguments: list[str] = []
        for word in self.arguments:
            arguments += several.get(word) or [fill(word, paths)]
        version, toolset = own.tool.version, own.tool.toolset or ""
        return self.desired(
            f"{own.entry} {version}",
            pins,
            name=own.entry,
            version=version,
            files=[pin.row for pin in pins],
            signer=own.tool.signer or "",
            prepare=[*own.tool.prepare],
            arguments=arguments,
            detect=fill(self.detect, {"toolset": toolset}),
            toolset=toolset,
        )
