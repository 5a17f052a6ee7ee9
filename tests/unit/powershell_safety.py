"""Rules: Windows PowerShell 5.1 takes it, and it opens no door."""

from __future__ import annotations

import re
from collections.abc import Iterator

from powershell_rules import DATA, Found, Rules
from powershell_syntax import Script, below, plain, text, variable
from tree_sitter import Node

RULES = Rules()

_NEWER = DATA["newer"]
_SECRET = re.compile(r"(?i)passw(or)?d|passphrase|passcode|secret|token")
_USER = re.compile(r"(?i)^(user|username|account)$")
_INSECURE = re.compile(r"(?i)\b(basic|allowunencrypted)\b['\")\s]*(=|-value\b)?[\s'\"(]*\$?true\b")
_EXPANDABLE = ("expandable_string_literal", "expandable_here_string_literal")


# -- 5.1 takes it --------------------------------------------------------------------------------


@RULES.rule("Syntax")
def _syntax(script: Script) -> Found:
    """No grammar of this kind knows ``??``, ``?.`` and ``a ? b : c``: to it they are mistakes."""

    def innermost(node: Node) -> Iterator[Node]:
        below_it = [child for child in node.children if child.has_error or child.is_missing]
        if node.is_missing or (node.is_error and not below_it):
            yield node
        for child in below_it:
            yield from innermost(child)

    for node in innermost(script.root):
        yield node, f"not understood: {text(node)!r}"


@RULES.rule("UseCompatibleSyntax")
def _compatible_syntax(script: Script) -> Found:
    for node in script.each("pipeline_chain_tail"):
        yield node, f"{text(node)} between pipelines came with PowerShell 7"
    for node in script.each(*_EXPANDABLE):
        if "`u{" in text(node):
            yield node, "`u{} came with PowerShell 6"
    for command in script.commands:
        if re.fullmatch(r"0b[01]+", command.name):
            yield command.node, "binary numbers came with PowerShell 7"


@RULES.rule("UseCompatibleCommands")
def _compatible_commands(script: Script) -> Found:
    parameters = {name.casefold(): words for name, words in _NEWER["parameters"].items()}
    for command in script.commands:
        if command.name in _NEWER["commands"].casefold().split():
            yield command.node, f"{command.name} is not in 5.1"
        for newer in parameters.get(command.name, "").split():
            if command.parameter(newer)[0]:
                yield command.node, f"{command.name} of 5.1 has no -{newer}"
        is_given, value = command.parameter("Encoding")
        if is_given and plain(value) in _NEWER["encodings"].casefold().split():
            yield command.node, f"5.1 has no encoding {plain(value)}"
    for node in script.each("variable"):
        if variable(node) in _NEWER["variables"].casefold().split():
            yield node, f"5.1 has no {text(node)}; with strict mode that is an error"


@RULES.rule("UseAscii")
def _ascii(script: Script) -> Found:
    """Without a byte order mark, 5.1 reads files in the code page of the machine."""
    for number, line in enumerate(script.source.splitlines()):
        if not line.isascii():
            yield number, "5.1 would read that in the machine's code page"


# -- safe ----------------------------------------------------------------------------------------


@RULES.rule("AvoidUsingInvokeExpression")
def _invoke_expression(script: Script) -> Found:
    for command in script.commands:
        if command.name in ("iex", "invoke-expression"):
            yield command.node, "runs text as code"


@RULES.rule("AvoidRunningText")
def _running_text(script: Script) -> Found:
    """The other ways to run text as code."""
    for command in script.commands:
        starts = command.name.removesuffix(".exe") in ("powershell", "pwsh")
        if starts and any("encodedcommand".startswith(p) for p in command.parameters if p):
            yield command.node, "-EncodedCommand"
    for node in script.each("invokation_expression"):
        called = re.sub(r"\s", "", text(node)).casefold()
        if re.match(r"\[(system\.management\.automation\.)?scriptblock\]::create\(", called):
            yield node, "[ScriptBlock]::Create"
        elif re.search(r"\.(invokescript|newscriptblock|addscript)\(", called):
            yield node, "runs text as code"


@RULES.rule("AvoidInterpolation")
def _interpolation(script: Script) -> Found:
    """Text that variables are put into tends to become code, a path or a pattern later."""
    for node in script.each(*_EXPANDABLE):
        if any(below(node, "variable", "sub_expression")):
            yield node, text(node)
    for node in script.each("generic_token"):
        if "$" in text(node):
            yield node, text(node)


@RULES.rule("AvoidBasicAndUnencrypted")
def _basic(script: Script) -> Found:
    for found in _INSECURE.finditer(script.code):
        yield script.code.count("\n", 0, found.start()), " ".join(found[0].split())
    for command in script.commands:
        is_given, value = command.parameter("Authentication")
        if is_given and plain(value) == "basic":
            yield command.node, "-Authentication Basic"


@RULES.rule("AvoidUsingPlainTextForPassword")
def _plain_password(script: Script) -> Found:
    for node in script.each("script_parameter"):
        named = next(child for child in node.children if child.type == "variable")
        types = {plain(child) for child in below(node, "type_identifier")}
        if _SECRET.search(variable(named)) and not types & {
            "securestring",
            "pscredential",
            "switch",
        }:
            yield node, text(named)


@RULES.rule("AvoidUsingUsernameAndPasswordParams")
def _user_and_password(script: Script) -> Found:
    for node in script.each("parameter_list"):
        names = [
            variable(child)
            for parameter in node.children
            for child in parameter.children
            if child.type == "variable"
        ]
        if any(map(_USER.match, names)) and any(map(_SECRET.search, names)):
            yield node, "one parameter of type PSCredential holds both"


@RULES.rule("AvoidUsingConvertToSecureStringWithPlainText")
def _as_plain_text(script: Script) -> Found:
    for command in script.commands:
        if command.name == "convertto-securestring" and command.parameter("AsPlainText")[0]:
            yield command.node, "-AsPlainText"


@RULES.rule("AvoidUsingComputerNameHardcoded")
def _computer_name(script: Script) -> Found:
    for command in script.commands:
        is_given, value = command.parameter("ComputerName")
        if is_given and value is not None and "$" not in text(value):
            yield command.node, text(value)


@RULES.rule("AvoidUsingBrokenHashAlgorithms")
def _hashes(script: Script) -> Found:
    for command in script.commands:
        is_given, value = command.parameter("Algorithm")
        if command.name == "get-filehash" and is_given and plain(value) in ("md5", "sha1"):
            yield command.node, plain(value)
    for node in script.each("type_literal"):
        if re.search(r"(?i)cryptography\.(md5|sha1)", text(node)):
            yield node, text(node)
