"""The parts of a planned wheel's bill of materials.

Only what :func:`pipelines.stages.buildspec.collect_materials` compares: all hosts must give the
same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from pipelines.core.finding import Finding
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.publish.provenance.sbom import (
    TOOLSET,
    Part,
    Role,
    compare_sbom,
    make_sbom_template,
    with_toolset,
)
from pipelines.recipe.naming import fixes_of
from pipelines.recipe.origin import FileSource, GitSource
from pipelines.recipe.patches import patch_file
from pipelines.recipe.vendored import Found, vendored_in
from pipelines.record.materials import SBOM, Material
from pipelines.record.results import BuildResult, ProvisionResult
from pipelines.stages.buildspec import COMPILERS, environment_of
from pipelines.stages.hooks import AuditHooks, BuildHooks
from pipelines.toolchain.lock import Tool
from pipelines.wheels.metadata import WheelFacts


class Bill(BuildHooks):
    """The wheel's bill, which the host completes and puts into it."""

    _bill = ""

    def materials(self, source: bytes, provisioned: ProvisionResult | None) -> Iterable[Material]:
        """The bill's hash."""
        self._bill = bill_of(self.plan, source, provisioned)
        return [Material(*SBOM, hashlib.sha256(self._bill.encode()).hexdigest())]

    def spec(self, *_: object) -> Mapping[str, Any]:
        """The bill."""
        return {"bill": self._bill}

    def with_toolset(self, spec: Mapping[str, Any], toolset: str) -> Mapping[str, Any]:
        """The bill of a build with another one."""
        return {"bill": with_toolset(spec["bill"], toolset)}

    def ended(self, spec: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, object]:
        """What the bill is to be: of a kept build another toolset may have cured it."""
        if answer["toolset"] in ("", spec["toolset"]):
            return {"bill": spec["bill"]}
        return self.with_toolset(spec, answer["toolset"])


class BillCheck(AuditHooks):
    """Whether the bill in the wheel is the one that was meant."""

    def checks(self, facts: WheelFacts, built: BuildResult) -> Iterable[Finding]:
        """That one."""
        return [compare_sbom(facts, built.bill)]


def bill_of(plan: BuildPlan, source: bytes, provisioned: ProvisionResult | None) -> str:
    """The bill of the wheel built from ``source``; ``provisioned`` has what is not pinned.

    Raises :class:`ConfigError` for vendored code that differs from the recipe's declaration.
    """
    target, recipe = plan.target, plan.recipe
    properties = {
        "gpu:architectures": str(plan.archs.effective),
        "cuda": target.cuda,
        "python": target.python,
        "torch": target.torch,
        "not for publishing": "" if plan.host.capabilities.publishable else "true",
    }
    for fix in fixes_of(recipe, recipe.cuda, recipe.torch) if plan.toolset.takes_fixes else ():
        properties |= {f"fix:{name}:{flags}": fix.why for name, flags in fix.flags.items()}
    parts = [
        _source_part(plan, source),
        *(_vendored(one) for one in vendored_in(recipe, source)),
        *_pinned(plan),
        *_iter_host_parts(plan, provisioned),
        Part(
            *("tool chain", plan.toolset.name, plan.toolset.version),
            properties={"made of": plan.toolset.files},
            ref=TOOLSET,
        ),
    ]
    if plan.host.inputs:
        parts.append(Part("build host", "image", plan.host.inputs))
    epoch = int(environment_of(plan, 1)["SOURCE_DATE_EPOCH"])
    return make_sbom_template(recipe.license, parts, properties, epoch)


def _source_part(plan: BuildPlan, source: bytes) -> Part:
    """The source; a pinned file has its own hash as well as that of what is built."""
    recipe, origin = plan.recipe, plan.recipe.source
    sent = hashlib.sha256(source).hexdigest()
    name, sha256, purl = recipe.distribution, sent, ""
    if isinstance(origin, FileSource):
        name, sha256 = origin.file, origin.sha256
        purl = _of_pypi(origin.pypi)
    elif isinstance(origin, GitSource):
        where = urlsplit(origin.git)
        path = where.path.strip("/").removesuffix(".git").lower()
        if where.hostname == "github.com":
            purl = f"pkg:github/{path}@{origin.commit}"
    properties = {"built of sha256": sent, "commit": getattr(origin, "commit", "")}
    changes = tuple((one, patch_file(one).read_bytes()) for one in recipe.patches)
    properties["patched by"] = ", ".join(one.file for one in recipe.patches)
    return Part(
        *("source", name, recipe.version, sha256, purl, recipe.license, properties), changes=changes
    )


def _vendored(found: Found) -> Part:
    one = found.declared
    purl = one.purl or ""
    return Part(
        *("vendored", one.name, found.version),
        purl=purl.format(version=found.version) if found.version else purl.partition("@")[0],
        license=one.license,
        properties={"directory": one.directory, "unknown": "" if found.version else "version"},
        ref=f"vendored {one.directory}",
    )


def _pinned(plan: BuildPlan) -> Iterator[Part]:
    """What of the lock builds it; not what is brought for its test alone."""
    lock, instead = plan.cache.lock, plan.host.replacements
    asked: dict[str, str] = {}
    if plan.host.existing is None:
        asked = lock.entries_for(plan.recipe.build_requires, plan.target, instead)
    names = [*plan.host.tools]
    for one in plan.wanted:
        whole = one.spec["kind"] != "files"  # these are wheels for the build and for the test
        names += [name for name in one.uploads if whole or name in asked.values()]
    for name in dict.fromkeys(names):
        role: Role = "built against" if name == asked.get("torch") else "tool chain"
        yield _tool_part(name, lock.tools[name], role, instead="torch" in instead)


def _tool_part(entry: str, tool: Tool, role: Role, *, instead: bool) -> Part:
    return Part(
        *(role, tool.name, tool.version, tool.sha256),
        purl=_of_pypi(tool.sources[0].pypi),
        properties={
            "file": tool.file,
            "stand-in": "a build of torch without CUDA"
            if role == "built against" and instead
            else "",
        },
        ref=f"tool {entry}",
    )


def _of_pypi(release: str | None) -> str:
    name, _, version = (release or "").partition("==")
    return f"pkg:pypi/{name}@{quote(version)}" if version else ""


def _iter_host_parts(plan: BuildPlan, provisioned: ProvisionResult | None) -> Iterator[Part]:
    """What was there already, of an environment that is used as it is: nothing has hashed it."""
    unhashed = {"unknown": "sha256"}
    for row in provisioned.resources if provisioned is not None else ():
        if row.kind == "program":
            yield Part("tool chain", row.id, row.values.get("version", ""), properties=unhashed)
        elif row.kind == COMPILERS:
            for name, text in sorted(row.values.items()):
                yield Part("tool chain", name, text, properties=unhashed)
        elif row.kind == "distributions":
            for name in ("Python", *plan.recipe.build_requires):
                role: Role = "built against" if name == "torch" else "tool chain"
                version = row.values.get(name, "")
                purl = f"pkg:pypi/{name}@{quote(version)}" if version and name != "Python" else ""
                yield Part(role, name, version, purl=purl, properties=unhashed)
