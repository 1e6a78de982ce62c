"""Checks the credentials of open connections again, and closes those whose credential is no longer valid.

A change of the signing keys starts a pass over all connections at once. Besides, a round visits every connection within
``security.auth_recheck_ms``, evenly spread over that time. A token that a key verified costs a set lookup. A token that
``security.auth_url`` decided about costs a request, so these are bounded in number and rate: with more connections than
the rate allows, a round takes longer, and the log says so.

While ``security.auth_url`` cannot be reached, a session stays until its identity expires (``security.auth_identity_ms``
after the last confirmation).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.config.security import SecuritySettings
    from pixiu.ports.authentication import Authentication, Identity
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway

__all__ = ["Rechecks"]

log = logging.getLogger(__name__)

TICK_MS_MIN, TICK_MS_MAX = 20, 100
CHECKS_PER_TURN = 500
"""Connections that are looked at in one turn of the loop: about half a millisecond."""
CLOSES_PER_TURN = 20
"""Connections that are closed in one turn: closing costs far more than looking."""
PAUSE_MS = 1
"""Between two turns of a pass."""
ASKED_MAX = 16
"""Rechecks at ``security.auth_url`` under way at a time; logins have the rest of its bound."""


class Rechecks:
    """The rechecks of one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        authentication: Authentication,
        clock: Clock,
        scheduler: Scheduler,
        settings: SecuritySettings,
    ) -> None:
        self._gateway = gateway
        self._authentication = authentication
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._tick_ms = max(TICK_MS_MIN, min(TICK_MS_MAX, settings.auth_recheck_ms // 10))
        self._timer: Timer | None = None
        self._generation = authentication.generation
        self._key_pass: Iterator[Connection] | None = None
        self._round: Iterator[Connection] | None = None
        self._round_us = 0
        """When the round began."""
        self._share = 0.0
        """Connections of the round that are due now."""
        self._next: Connection | None = None
        """The connection at which the round waits, because too many requests are under way."""
        self._allowance = 0.0
        """Requests that the rate allows now."""
        self._asked = 0

    def start(self) -> None:
        """Begin; ``stop`` ends it."""
        self._timer = self._scheduler.after(self._tick_ms, self._tick)

    def stop(self) -> None:
        """Start no further checks."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._key_pass = self._round = None

    def _tick(self) -> None:
        self._timer = self._scheduler.after(self._tick_ms, self._tick)
        generation = self._authentication.generation
        if generation != self._generation:
            self._generation = generation
            is_running = self._key_pass is not None
            self._key_pass = self._gateway.connections()
            log.info("auth_keys_changed", extra={"connections": self._gateway.counters.connections})
            if not is_running:
                self._check_keys()
        self._continue_round()

    # After a change of the keys.

    def _check_keys(self) -> None:
        """One turn of the pass over all connections."""
        if self._key_pass is None:
            return
        closed = 0
        for checked, connection in enumerate(self._key_pass, 1):
            identity = connection.identity
            if identity is not None and not identity.token:
                self._recheck(connection, identity)
                closed += connection.is_closed
            if checked == CHECKS_PER_TURN or closed == CLOSES_PER_TURN:
                self._scheduler.after(PAUSE_MS, self._check_keys)
                return
        self._key_pass = None

    # Every connection once per interval.

    def _continue_round(self) -> None:
        now_us, interval_us = self._clock.monotonic_us(), self._settings.auth_recheck_ms * 1000
        if self._round is None:
            if self._round_us and now_us - self._round_us < interval_us:
                return
            self._round, self._round_us, self._share = self._gateway.connections(), now_us, 0.0
        per_second = self._settings.auth_rechecks_per_second
        self._allowance = min(self._allowance + per_second * self._tick_ms / 1000, max(1.0, per_second / 10))
        self._share += max(1.0, self._gateway.counters.connections * self._tick_ms / self._settings.auth_recheck_ms)
        for _ in range(CHECKS_PER_TURN):
            if self._share < 1:
                return
            connection = self._next or next(self._round, None)
            self._next = None
            if connection is None:
                self._end_round(now_us)
                return
            identity = connection.identity
            if identity is not None and not connection.is_closed:
                if identity.token and (self._allowance < 1 or self._asked >= ASKED_MAX):
                    self._next = connection
                    return
                if identity.token:
                    self._allowance -= 1
                    self._asked += 1
                self._recheck(connection, identity)
            self._share -= 1

    def _end_round(self, now_us: int) -> None:
        self._round = None
        took_ms = (now_us - self._round_us) // 1000
        if took_ms > 2 * self._settings.auth_recheck_ms:
            log.warning(
                "auth_recheck_behind",
                extra={
                    "took_ms": took_ms,
                    "auth_recheck_ms": self._settings.auth_recheck_ms,
                    "auth_rechecks_per_second": self._settings.auth_rechecks_per_second,
                    "connections": self._gateway.counters.connections,
                },
            )

    # One connection.

    def _recheck(self, connection: Connection, identity: Identity) -> None:
        self._authentication.recheck(identity, partial(self._decided, connection, identity))

    def _decided(self, connection: Connection, before: Identity, answer: Identity | PixiuError) -> None:
        if before.token:
            self._asked -= 1
        if connection.is_closed or connection.identity is not before:
            return
        if isinstance(answer, Unauthenticated):
            connection.revoke(answer)
        elif isinstance(answer, PixiuError):
            return  # no decision: the session stays until its identity expires
        elif answer[:4] != before[:4]:
            connection.revoke(Unauthenticated("the token now stands for another user, platform, device or role"))
        else:
            self._gateway.confirmed(connection, answer)
