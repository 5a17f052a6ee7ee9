"""The bodies of successful answers (MS-WSMV 2.2.4)."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

from .soap import SHELL, escape

if TYPE_CHECKING:
    from .commands import Output
    from .shells import Limits, Shell

COMMAND_RESOURCE = f"{SHELL}/cmd"
CONFIG_RESOURCE = "http://schemas.microsoft.com/wbem/wsman/1/config"
STATE = f"{SHELL}/CommandState"


def config(limits: Limits) -> bytes:
    """The part of the service's configuration that clients ask for (2.2.4.10)."""
    return (
        f'<cfg:Config xmlns:cfg="{CONFIG_RESOURCE}">'
        f"<cfg:MaxEnvelopeSizekb>{limits.max_envelope // 1024}</cfg:MaxEnvelopeSizekb>"
        f"<cfg:MaxTimeoutms>{limits.max_operation_timeout * 1000:.0f}</cfg:MaxTimeoutms>"
        "</cfg:Config>"
    ).encode()


def created(shell: Shell) -> bytes:
    """The reference to a new shell, then its state (3.1.4.10)."""
    return (
        "<x:ResourceCreated><a:Address>http://localhost/wsman</a:Address><a:ReferenceParameters>"
        f"<w:ResourceURI>{COMMAND_RESOURCE}</w:ResourceURI><w:SelectorSet>"
        f'<w:Selector Name="ShellId">{shell.id}</w:Selector></w:SelectorSet>'
        f"</a:ReferenceParameters></x:ResourceCreated>{shell_xml(shell)}"
    ).encode()


def received(command_id: str, output: Output) -> tuple[bytes, ...]:
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
        f"<rsp:WorkingDirectory>{escape(shell.cwd)}</rsp:WorkingDirectory>" if shell.cwd else ""
    )
    return (
        f"<rsp:Shell><rsp:ShellId>{shell.id}</rsp:ShellId>"
        f"<rsp:ResourceUri>{COMMAND_RESOURCE}</rsp:ResourceUri>"
        f"<rsp:Owner>{escape(shell.owner)}</rsp:Owner><rsp:ClientIP>127.0.0.1</rsp:ClientIP>"
        f"<rsp:IdleTimeOut>PT{shell.idle_timeout:.3f}S</rsp:IdleTimeOut>{directory}"
        "<rsp:InputStreams>stdin</rsp:InputStreams>"
        "<rsp:OutputStreams>stdout stderr</rsp:OutputStreams>"
        "</rsp:Shell>"
    )
