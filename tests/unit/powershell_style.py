"""Rules: it says what it means, and errors do not pass unnoticed."""

from __future__ import annotations

import itertools
import re

from powershell_rules import DATA, Found, Rules
from powershell_syntax import Script, above, below, plain, text, variable
from tree_sitter import Node

RULES = Rules()

_ALIASES, _VERBS, _AUTOMATIC, _PREFERENCES = (
    frozenset(DATA[key].casefold().split())
    for key in ("aliases", "verbs", "automatic_variables", "preference_variables")
)


@RULES.rule("AvoidUsingCmdletAliases")
def _alias(script: Script) -> Found:
    for command in script.commands:
        if command.name in _ALIASES:
            yield command.node, command.name


@RULES.rule("AvoidUsingWriteHost")
def _write_host(script: Script) -> Found:
    for command in script.commands:
        if command.name == "write-host":
            yield command.node, "cannot be captured on all hosts: Write-Output or Write-Verbose"


@RULES.rule("AvoidUsingWMICmdlet")
def _wmi(script: Script) -> Found:
    for command in script.commands:
        if re.fullmatch(r"[a-z]+-wmi[a-z]+", command.name):
            yield command.node, f"{command.name}: the CIM commands are there in 5.1 and 7"


@RULES.rule("UseApprovedVerbs")
def _verbs(script: Script) -> Found:
    for node in script.each("function_name"):
        verb, dash, _ = text(node).rpartition(":")[2].partition("-")
        if not dash or verb.casefold() not in _VERBS:
            yield node, text(node)


@RULES.rule("AvoidGlobalVars")
def _global_variables(script: Script) -> Found:
    for node in script.each("variable"):
        scope, colon, name = variable(node).partition(":")
        if colon and scope == "global" and name not in _AUTOMATIC:
            yield node, text(node)


@RULES.rule("AvoidGlobalFunctions")
def _global_functions(script: Script) -> Found:
    for node in script.each("function_name"):
        if text(node).casefold().startswith("global:"):
            yield node, text(node)


@RULES.rule("AvoidUsingEmptyCatchBlock")
def _empty_catch(script: Script) -> Found:
    for node in script.each("catch_clause"):
        (block,) = (child for child in node.children if child.type == "statement_block")
        if not any(child.is_named and child.type != "comment" for child in block.children):
            yield node, "an error disappears without a trace"


@RULES.rule("PossibleIncorrectComparisonWithNull")
def _null_on_the_right(script: Script) -> Found:
    """With a list on the left, ``-eq $null`` filters it instead of comparing."""
    for node in script.each("comparison_expression"):
        parts = [child for child in node.children if child.type != "comment"]
        for operator, right in itertools.pairwise(parts):
            if operator.type == "comparison_operator" and text(right).casefold() == "$null":
                yield node, text(node)


@RULES.rule("PossibleIncorrectUsageOfAssignmentOperator")
def _assignment_in_condition(script: Script) -> Found:
    for node in script.each("assignment_expression"):
        place = above(node, "pipeline")
        place = place.parent if place is not None else None
        if place is not None and place.type in ("if_statement", "elseif_clause", "while_condition"):
            yield node, text(node)


def _is_assigned(node: Node) -> bool:
    """Whether a variable itself is assigned, not something in it."""
    place = node.parent
    while place is not None and place.type not in ("member_access", "element_access"):
        if place.type == "left_assignment_expression":
            return True
        place = place.parent
    return False


@RULES.rule("UseDeclaredVarsMoreThanAssignments")
def _never_read(script: Script) -> Found:
    """By name in the whole file: a variable that is assigned there and read nowhere."""
    assigned: dict[str, Node] = {}
    read = {"null", *_PREFERENCES}
    for node in script.each("variable", "generic_token"):
        if node.type == "generic_token":
            read |= {name.casefold() for name in re.findall(r"\$\{?(\w+)", text(node))}
        elif _is_assigned(node):
            assigned.setdefault(variable(node), node)
        else:
            read.add(variable(node))
    for name, node in assigned.items():
        if ":" not in name and name not in read:
            yield node, text(node)


@RULES.rule("AvoidAssignmentToAutomaticVariable")
def _automatic(script: Script) -> Found:
    for node in script.each("variable"):
        place = node.parent.type if node.parent else ""
        before = text(node.prev_sibling) if node.prev_sibling else ""
        loops = place == "foreach_statement" and before == "("
        made = loops or place == "script_parameter" or _is_assigned(node)
        if made and variable(node) in _AUTOMATIC - {"null"}:
            yield node, text(node)


@RULES.rule("AvoidDefaultValueSwitchParameter")
def _switch_on(script: Script) -> Found:
    for node in script.each("script_parameter"):
        is_switch = any(plain(child) == "switch" for child in below(node, "type_identifier"))
        if is_switch and "$true" in text(node.children[-1]).casefold():
            yield node, text(node)


@RULES.rule("AvoidDefaultValueForMandatoryParameter")
def _mandatory_default(script: Script) -> Found:
    for node in script.each("script_parameter"):
        has_default = any(child.type == "script_parameter_default" for child in node.children)
        arguments = (text(child) for child in below(node, "attribute_argument"))
        if has_default and any(
            re.fullmatch(r"(?i)mandatory(\s*=\s*\$true)?", argument) for argument in arguments
        ):
            yield node, text(node)


@RULES.rule("UseStrictMode")
def _strict(script: Script) -> Found:
    """A file begins with both, before anything can go wrong unnoticed."""
    if not script.is_file:
        return
    lists = [child for child in script.root.children if child.type == "statement_list"]
    statements = [
        c for node in lists for c in node.children if c.type not in ("empty_statement", "comment")
    ]
    first = [re.sub(r"['\"]", "", text(node)).casefold() for node in statements[:2]]
    for wanted in ("set-strictmode -version latest", "$erroractionpreference = stop"):
        if wanted not in first:
            yield 0, f"does not begin with '{wanted}'"


@RULES.rule("AvoidTrailingWhitespace")
def _trailing(script: Script) -> Found:
    for number, line in enumerate(script.source.split(b"\n")):
        if line.removesuffix(b"\r") != line.rstrip():
            yield number, "blanks at the end of a line"
