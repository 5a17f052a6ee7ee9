"""What PowerShell of this repository must not do; rules of PSScriptAnalyzer have its names.

https://learn.microsoft.com/powershell/utility-modules/psscriptanalyzer/rules/readme describes them.
The others are what Windows PowerShell 5.1 cannot take (``UseCompatible...``) and our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from powershell_syntax import Script
from tree_sitter import Node

DATA: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("powershell.yaml").read_text("utf-8")
)

#: A node, or a line counted from 0, and what is wrong there.
Found = Iterator[tuple[Node | int, str]]
Rule = Callable[[Script], Found]


@dataclass(frozen=True)
class Finding:
    """Something that a rule does not allow."""

    name: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}:{self.line}: {self.rule}: {self.what}"


class Rules(dict[str, Rule]):
    """Rules by their names."""

    def rule(self, name: str) -> Callable[[Rule], Rule]:
        """Keep the decorated function under ``name``."""

        def keep(function: Rule) -> Rule:
            self[name] = function
            return function

        return keep

    def check(self, script: Script) -> list[Finding]:
        """Everything in ``script`` that some rule does not allow."""
        found = []
        for name, look in self.items():
            for where, what in look(script):
                line = where if isinstance(where, int) else where.start_point[0]
                found.append(Finding(script.name, script.first + line, name, what[:120]))
        return sorted(found, key=lambda finding: finding.line)
