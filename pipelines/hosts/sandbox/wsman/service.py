"""From one envelope to its answer: the actions of the shell resource (MS-WSMV 3.1.4)."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import faults
from .shells import Limits, Shell, ShellTable
from .soap import (
    NAMESPACES,
    SHELL,
    TRANSFER,
    Request,
    escape_xml,
    fault_envelope,
    parse_duration,
    parse_soap_envelope,
    response_envelope,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from .commands import Output
    from .shells import Limits, Shell


COMMAND_RESOURCE = f"{SHELL}/cmd"
CONFIG_RESOURCE = "http://schemas.microsoft.com/wbem/wsman/1/config"
STATE = f"{SHELL}/CommandState"


def service_config_xml(limits: Limits) -> bytes:
    """The part of the service's configuration that clients ask for (2.2.4.10)."""
    return (
        f'<cfg:Config xmlns:cfg="{CONFIG_RESOURCE}">'
        f"<cfg:MaxEnvelopeSizekb>{limits.max_envelope // 1024}</cfg:MaxEnvelopeSizekb>"
        f"<cfg:MaxTimeoutms>{limits.max_operation_timeout * 1000:.0f}</cfg:MaxTimeoutms>"
        "</cfg:Config>"
    ).encode()


def resource_created_xml(shell: Shell) -> bytes:
    """The reference to a new shell, then its state (3.1.4.10)."""
    return (
        "<x:ResourceCreated><a:Address>http://localhost/wsman</a:Address><a:ReferenceParameters>"
        f"<w:ResourceURI>{COMMAND_RESOURCE}</w:ResourceURI><w:SelectorSet>"
        f'<w:Selector Name="ShellId">{shell.id}</w:Selector></w:SelectorSet>'
        f"</a:ReferenceParameters></x:ResourceCreated>{shell_xml(shell)}"
    ).encode()


def receive_response_xml(command_id: str, output: Output) -> tuple[bytes, ...]:
    """Streams, ends of streams and the state of the command (2.2.4.32), in pieces."""
    pieces = [b"<rsp:ReceiveResponse>"]
    for name, data in output.data.items():
        pieces.append(f'<rsp:Stream Name="{name}" CommandId="{command_id}">'.encode())
        pieces.append(binascii.b2a_base64(data, newline=False))
        pieces.append(b"</rsp:Stream>")
    pieces.extend(
        f'<rsp:Stream Name="{name}" CommandId="{command_id}" End="true"/>'.encode()
        for name in output.ended
    )
    state = f'<rsp:CommandState CommandId="{command_id}" State="{STATE}'
    if output.exit_code is None:
        state += '/Running"/>'
    else:
        state += f'/Done"><rsp:ExitCode>{output.exit_code}</rsp:ExitCode></rsp:CommandState>'
    return (*pieces, state.encode(), b"</rsp:ReceiveResponse>")


def shell_xml(shell: Shell) -> str:
    """The state of a shell (MS-WSMV 2.2.4.36)."""
    directory = (
        f"<rsp:WorkingDirectory>{escape_xml(shell.cwd)}</rsp:WorkingDirectory>" if shell.cwd else ""
    )
    return (
        f"<rsp:Shell><rsp:ShellId>{shell.id}</rsp:ShellId>"
        f"<rsp:ResourceUri>{COMMAND_RESOURCE}</rsp:ResourceUri>"
        f"<rsp:Owner>{escape_xml(shell.owner)}</rsp:Owner><rsp:ClientIP>127.0.0.1</rsp:ClientIP>"
        f"<rsp:IdleTimeOut>PT{shell.idle_timeout:.3f}S</rsp:IdleTimeOut>{directory}"
        "<rsp:InputStreams>stdin</rsp:InputStreams>"
        "<rsp:OutputStreams>stdout stderr</rsp:OutputStreams>"
        "</rsp:Shell>"
    )


_MESSAGE_ID = re.compile(rb"<(?:[\w.-]+:)?MessageID[^<>]*>([\w:{}-]{1,100})</")
_ID = re.compile(r"[0-9A-Fa-f-]{36}")
_HEADER_BYTES = 16384  # where to look for the MessageID of an envelope that is too big to parse


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the authenticated name, and the socket to watch while the request waits."""

    name: str
    socket: int = -1


class WsmanService:
    """All actions over one table of shells; each call runs in its connection's thread."""

    def __init__(self, table: ShellTable) -> None:
        self._table = table
        self._shell_actions: dict[str, Callable[[Request, Shell, Caller], tuple[bytes, ...]]] = {
            f"{TRANSFER}/Get": self._describe,
            f"{SHELL}/Command": self._command,
            f"{SHELL}/Send": self._send,
            f"{SHELL}/Receive": self._receive,
            f"{SHELL}/Signal": self._signal,
        }

    @property
    def limits(self) -> Limits:
        """The quotas in force."""
        return self._table.limits

    def handle(self, raw: bytes, caller: Caller) -> tuple[int, bytes]:
        """Answer one envelope: HTTP status and body. MalformedRequestError passes through."""
        limit = self.limits.max_envelope
        if len(raw) > limit:
            match = _MESSAGE_ID.search(raw[:_HEADER_BYTES])
            relates_to = match.group(1).decode() if match else ""
            too_large = faults.wsman_fault("envelope-too-large", size=len(raw), limit=limit)
            return 500, fault_envelope(relates_to, too_large)
        request: Request | None = None
        try:
            request = parse_soap_envelope(raw)
            body = self._dispatch(request, caller)
            return 200, response_envelope(f"{request.action}Response", request.message_id, *body)
        except faults.WsmanFaultError as fault:
            return 500, fault_envelope(request.message_id if request else "", fault)

    def _dispatch(self, request: Request, caller: Caller) -> tuple[bytes, ...]:
        action = request.action
        if request.resource_uri == CONFIG_RESOURCE and action == f"{TRANSFER}/Get":
            return (service_config_xml(self.limits),)
        if not request.resource_uri.startswith(SHELL):
            raise faults.wsman_fault("unknown-resource")
        if action == f"{TRANSFER}/Create":
            return (self._create(request, caller),)
        shell_id = request.selectors.get("ShellId", "")
        if action == f"{TRANSFER}/Delete":
            self._table.delete(shell_id, caller.name)
            return ()
        do = self._shell_actions.get(action)
        if do is None:
            raise faults.wsman_fault("unknown-action", action=action)
        shell = self._table.get(shell_id, caller.name)
        with shell.in_use():
            return do(request, shell, caller)

    def _create(self, request: Request, caller: Caller) -> bytes:
        requested = request.body.find("rsp:Shell", NAMESPACES)
        if request.resource_uri != COMMAND_RESOURCE or requested is None:
            raise faults.invalid_parameter_fault("Only command shells can be created here.")
        shell_id = requested.get("ShellId", "")
        if shell_id and not _ID.fullmatch(shell_id):
            raise faults.invalid_parameter_fault("A ShellId must be a UUID.")
        env = {}
        for variable in requested.iterfind("rsp:Environment/rsp:Variable", NAMESPACES):
            name = variable.get("Name", "")
            if not name or "=" in name:
                raise faults.invalid_parameter_fault("A variable needs a name without '='.")
            env[name] = variable.text or ""
        if codepage := request.options.get("WINRS_CODEPAGE"):
            env.setdefault("WINRS_CODEPAGE", codepage)
        shell = self._table.create(
            caller.name,
            env=env,
            cwd=requested.findtext("rsp:WorkingDirectory", None, NAMESPACES) or None,
            idle_timeout=_optional_duration(requested, "rsp:IdleTimeOut"),
            lifetime=_optional_duration(requested, "rsp:Lifetime"),
            shell_id=shell_id.upper(),
        )
        return resource_created_xml(shell)

    def _describe(self, request: Request, shell: Shell, caller: Caller) -> tuple[bytes, ...]:
        del request, caller
        return (shell_xml(shell).encode(),)

    def _command(self, request: Request, shell: Shell, caller: Caller) -> tuple[bytes, ...]:
        del caller
        line = request.body.find("rsp:CommandLine", NAMESPACES)
        name = "" if line is None else line.findtext("rsp:Command", "", NAMESPACES)
        if line is None or not name:
            raise faults.invalid_parameter_fault("The CommandLine has no Command.")
        arguments = (argument.text or "" for argument in line.iterfind("rsp:Arguments", NAMESPACES))
        command_id = shell.start(
            self._table.launch,
            " ".join((name, *arguments)),
            self.limits,
            skip_cmd_shell=request.options.get("WINRS_SKIP_CMD_SHELL", "").lower() in {"true", "1"},
        )
        return (
            f"<rsp:CommandResponse><rsp:CommandId>{command_id}</rsp:CommandId></rsp:CommandResponse>".encode(),
        )

    def _send(self, request: Request, shell: Shell, caller: Caller) -> tuple[bytes, ...]:
        del caller
        streams = request.body.findall("rsp:Send/rsp:Stream", NAMESPACES)
        if len(streams) != 1 or streams[0].get("Name") != "stdin":
            raise faults.invalid_parameter_fault("Send needs exactly one Stream, named stdin.")
        stream = streams[0]
        shell.command(stream.get("CommandId", "")).send(
            request.stream_data(stream),
            end=stream.get("End", "").lower() in {"true", "1"},
            timeout=self._timeout(request),
        )
        return (b"<rsp:SendResponse/>",)

    def _receive(self, request: Request, shell: Shell, caller: Caller) -> tuple[bytes, ...]:
        expected = request.body.find("rsp:Receive/rsp:DesiredStream", NAMESPACES)
        if expected is None:
            raise faults.invalid_parameter_fault("Receive names no DesiredStream.")
        command = shell.command(expected.get("CommandId", ""))
        output = command.receive(self._timeout(request), self.limits.receive_bytes, caller.socket)
        return receive_response_xml(command.id, output)

    def _signal(self, request: Request, shell: Shell, caller: Caller) -> tuple[bytes, ...]:
        del caller
        signal = request.body.find("rsp:Signal", NAMESPACES)
        if signal is None:
            raise faults.invalid_parameter_fault("The Signal has no Code.")
        command_id = signal.get("CommandId", "")
        # Clients differ in the case of these (MS-WSMV 2.2.4.38).
        code = (signal.findtext("rsp:Code", "", NAMESPACES) or "").lower().rpartition("/")[2]
        if code == "terminate":
            shell.terminate(command_id)
        elif code in {"ctrl_c", "ctrl_break"}:
            shell.command(command_id).interrupt()
        else:
            raise faults.invalid_parameter_fault("This signal code is unknown.")
        return (b"<rsp:SignalResponse/>",)

    def _timeout(self, request: Request) -> float:
        return min(request.operation_timeout, self.limits.max_operation_timeout)


def _optional_duration(element: Element, path: str) -> float | None:
    text = element.findtext(path, "", NAMESPACES)
    if not text:
        return None
    seconds = parse_duration(text)
    if seconds <= 0:
        raise faults.invalid_parameter_fault("A time limit must be above zero.")
    return seconds
