"""A short text about a failure for an issue, without names, addresses and secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipelines import __version__
from pipelines.core.model import Model, read_data
from pipelines.diagnosis.judge import Diagnosis

_USER = re.compile(r"[\\/](?:Users|home|Documents and Settings)[\\/]{1,4}([^\\/\s\"':;,]{1,64})")


class _Rules(Model):
    rules: tuple[tuple[str, str], ...]


def anonymize_text(text: str) -> str:
    """``text`` without names of users and hosts, addresses, secrets and own directories."""
    for user in sorted(set(_USER.findall(text)), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "USER", text)
    for pattern, replacement in read_data(Path(__file__).with_name("anonymous.yaml"), _Rules).rules:
        text = re.sub(pattern, replacement, text)
    return text


def format_issue(diagnosis: Diagnosis | None, lines: Sequence[str]) -> str:
    """What the diagnosis is, and the decisive ``lines``, to be read before it is published."""
    rows = [f"wcw {__version__}"]
    if diagnosis:
        cause = diagnosis.cause
        rows.append(f"{cause.signature.id} ({cause.confidence}), line {cause.line}")
        rows += [f"{name}: {', '.join(set(facts))}" for name, facts in diagnosis.facts.items()]
        rows += [f"also {one.signature.id}, line {one.line}" for one in diagnosis.others[:10]]
    return anonymize_text("\n".join([*rows, "", *lines, ""]))
