"""One connection to one server: commands out, answers in, in order."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from valkey.backoff import NoBackoff
from valkey.connection import Connection, SSLConnection
from valkey.exceptions import BusyLoadingError, ResponseError
from valkey.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.backends.redis.address import RedisAddress

__all__ = ["Command", "Server", "TextCommand"]

Command = tuple[Any, ...]
"""A name, the key that says where it belongs, and the rest."""


class TextCommand(tuple[str, ...]):
    """A command of text alone: a commit takes it as it is."""

    __slots__ = ()


class Server:
    """One connection."""

    def __init__(self, address: RedisAddress, host: str, port: int, *, is_sentinel: bool = False) -> None:
        seconds = address.timeout_ms / 1000
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        if not is_sentinel:
            options |= {"db": address.database, "username": address.username, "password": address.password}
        kind: type[Connection] | type[SSLConnection] = Connection
        if address.is_tls:
            kind = SSLConnection
            options |= {
                "ssl_ca_certs": address.ca,
                "ssl_check_hostname": address.is_verified,
                "ssl_cert_reqs": "required" if address.is_verified else "none",
                "ssl_min_version": ssl.TLSVersion.TLSv1_2,
            }
        self.name = f"{host}:{port}"
        self._connection = kind(**options)

    def send(self, commands: Sequence[Command]) -> None:
        """Send without waiting."""
        connection = self._connection
        connection.send_packed_command([packed(commands)], check_health=False)

    def receive(self, count: int) -> list[Any]:
        """Wait for that many answers; an error is an answer."""
        answers: list[Any] = []
        read: Callable[..., Any] = self._connection.read_response
        for _ in range(count):
            try:
                answers.append(read(disconnect_on_error=True))
            except ResponseError as error:
                answers.append(error)
            except BusyLoadingError as error:
                answers.append(error)
        return answers

    def can_receive(self) -> bool:
        """Has an answer come, or a part of it?"""
        return bool(self._connection.can_read(timeout=0))

    def ask(self, *command: Any) -> Any:
        """One question; an error raises."""
        self.send([command])
        answer = self.receive(1)[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Let go."""
        self._connection.disconnect()


def packed(commands: Sequence[Command]) -> bytes:
    """Commands as they are sent. A commit has thousands of arguments, and the driver takes three times as long."""
    parts: list[bytes] = []
    add = parts.append
    for command in commands:
        add(b"*%d\r\n" % len(command))
        for argument in command:
            kind = type(argument)
            if kind is str:
                argument = argument.encode()
            elif kind is not bytes:
                argument = repr(argument).encode()
            add(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)
