"""A WS-Management server for command shells: what WinRM is on Windows, for sandbox and tests.

with WsmanServer(launcher, write_credentials(path, user, password)) as server:
    ... any WinRM client against server.http_url, with NTLM and message encryption
"""
