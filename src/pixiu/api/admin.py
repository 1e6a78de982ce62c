"""Paths for those who look after a node. Every one of them asks for an admin's token first."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse
from starlette.routing import Route

from pixiu.api.administration import now
from pixiu.api.answers import json_answer
from pixiu.api.bodies import read_object
from pixiu.im import params as read
from pixiu.im.paging import fitting
from pixiu.model.errors import Overloaded, RequestError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pixiu.api.administration import Administration
    from pixiu.api.bridge import Bridge
    from pixiu.im.draft import Actor, Answer, Params

__all__ = ["CUT_PATH", "AdminRoutes"]

log = logging.getLogger(__name__)

CUT_PATH = "/v1/admin/cut"
ROWS_MAX = 1000
ROWS = 100
PAGE_BYTES_MAX = 2**20
"""Bytes of one page of any of these lists; ``after`` the last row asks for the rest."""
TAIL_MAX = 200
TAIL = 50
REASON_BYTES_MAX = 64
TOPIC_NAME_BYTES_MAX = 128
EXPLAINING_MAX = 4
"""Messages explained at a time: each may read a part of the log."""


class AdminRoutes:
    """Numbers, sessions, dead letters, scheduled sends, topics, the audit, one message's way, the pipeline."""

    def __init__(self, bridge: Bridge, administration: Administration, *, bytes_max: int) -> None:
        self._bridge = bridge
        self._administration = administration
        self._bytes_max = bytes_max
        self._is_auditing = False
        self._is_redacting = False
        self._explaining = 0

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/v1/admin/stats", self._stats, methods=["GET"]),
            Route("/v1/admin/stats/history", self._stats_history, methods=["GET"]),
            Route("/v1/admin/sessions", self._sessions, methods=["GET"]),
            Route("/v1/admin/kick", self._kick, methods=["POST"]),
            Route("/v1/admin/dead-letters", self._dead_letters, methods=["GET"]),
            Route("/v1/admin/dead-letters/{id}/replay", self._replay, methods=["POST"]),
            Route("/v1/admin/scheduled", self._scheduled, methods=["GET"]),
            Route("/v1/admin/topics", self._topics, methods=["GET"]),
            # A topic's name may hold a slash.
            Route("/v1/admin/topics/{name:path}/tail", self._tail, methods=["GET"]),
            Route("/v1/admin/audit", self._audit, methods=["GET"]),
            Route("/v1/admin/redact", self._redact, methods=["POST"]),
            Route("/v1/admin/explain", self._explain, methods=["GET"]),
            Route(CUT_PATH, self._cut, methods=["GET"]),
            Route("/v1/admin/pipeline", self._pipeline, methods=["GET"]),
            Route("/v1/admin/pipeline/report", self._pipeline_report, methods=["GET"]),
        ]

    async def _admin(self, request: Request) -> Actor:
        return await self._bridge.identify_admin(request.headers.get("authorization", ""))

    async def _stats(self, request: Request) -> Response:
        await self._admin(request)
        _query(request)
        return json_answer(await now(self._administration.stats()))

    async def _stats_history(self, request: Request) -> Response:
        await self._admin(request)
        after = read.whole(_query(request, "after").get("after", "0"), "after")
        return json_answer(await now(self._administration.stats_history(after)))

    async def _sessions(self, request: Request) -> Response:
        await self._admin(request)
        params, after, limit = _page(request, "user")
        user = None if "user" not in params else read.public_id_text(params["user"], "user")
        found = await now(self._administration.sessions(user, after, limit + 1))
        return json_answer(_rows("sessions", found, limit))

    async def _kick(self, request: Request) -> Response:
        actor = await self._admin(request)
        params = await read_object(request, bytes_max=self._bytes_max)
        read.check_known("kick", params, frozenset({"user", "session_id", "reason"}))
        user = read.public_id_text(read.required(params, "user"), "user")
        session_id = read.number(params, "session_id")
        reason = read.line(params, "reason", bytes_max=REASON_BYTES_MAX, default="kicked") or "kicked"
        kicked = await now(self._administration.kick(user, session_id, reason))
        log.info("kicked by an admin", extra={"admin": actor.user, "kicked": kicked, "reason": reason})
        return json_answer({"kicked": kicked})

    async def _dead_letters(self, request: Request) -> Response:
        await self._admin(request)
        _, after, limit = _page(request)
        found = await now(self._administration.dead_letters(after, limit + 1))
        return json_answer(_rows("dead_letters", found, limit))

    async def _replay(self, request: Request) -> Response:
        actor = await self._admin(request)
        dead_letter_id = read.whole(request.path_params["id"], "id", at_least=1)
        await self._administration.replay(dead_letter_id)
        log.info("dead letter given back by an admin", extra={"admin": actor.user, "event_id": dead_letter_id})
        return json_answer({"id": str(dead_letter_id)})

    async def _scheduled(self, request: Request) -> Response:
        await self._admin(request)
        _, after, limit = _page(request)
        found = await now(self._administration.scheduled(after, limit + 1))
        return json_answer(_rows("scheduled", found, limit))

    async def _topics(self, request: Request) -> Response:
        await self._admin(request)
        params = _query(request, "after", "limit")
        after, limit = read.line(params, "after", bytes_max=TOPIC_NAME_BYTES_MAX, default="") or "", _limit(params)
        found = await now(self._administration.topics(after, limit + 1))
        return json_answer(_rows("topics", found, limit))

    async def _tail(self, request: Request) -> Response:
        await self._admin(request)
        params = _query(request, "after", "limit")
        limit = read.number(params, "limit", at_least=1, at_most=TAIL_MAX, default=TAIL) or TAIL
        name = request.path_params["name"]
        return json_answer(await now(self._administration.tail(name, read.number(params, "after"), limit)))

    async def _audit(self, request: Request) -> Response:
        await self._admin(request)
        params = _query(request, "from", "to")
        at_least, before = read.number(params, "from", default=0) or 0, read.number(params, "to")
        if before is not None and at_least >= before:
            raise RequestError(f"from must be before to, not {at_least} to {before}")
        if self._is_auditing:
            raise Overloaded("an audit runs already: it reads the whole log", retry_after_ms=5000)
        self._is_auditing = True
        try:
            return json_answer(await self._administration.audit(at_least, before))
        finally:
            self._is_auditing = False

    async def _redact(self, request: Request) -> Response:
        actor = await self._admin(request)
        if self._is_redacting:
            raise Overloaded("a redaction runs already: it reads the whole log", retry_after_ms=5000)
        self._is_redacting = True
        try:
            report = await self._administration.redact()
        finally:
            self._is_redacting = False
        log.info("redacted by an admin", extra={"admin": actor.user, "messages": report["messages"]})
        return json_answer(report)

    async def _explain(self, request: Request) -> Response:
        await self._admin(request)
        params = _query(request, "message_id")
        message_id = read.whole(read.required(params, "message_id"), "message_id", at_least=1)
        if self._explaining >= EXPLAINING_MAX:
            raise Overloaded(f"{self._explaining} messages are being explained already", retry_after_ms=1000)
        self._explaining += 1
        try:
            return json_answer(await self._administration.explain(message_id))
        finally:
            self._explaining -= 1

    async def _cut(self, request: Request) -> Response:
        await self._admin(request)
        _query(request)
        lines = await self._administration.cut()
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _pipeline(self, request: Request) -> Response:
        await self._admin(request)
        _query(request)
        return json_answer(await now(self._administration.pipeline()))

    async def _pipeline_report(self, request: Request) -> Response:
        await self._admin(request)
        _query(request)
        return json_answer(await self._administration.pipeline_report())


def _page(request: Request, *more: str) -> tuple[Params, int, int]:
    params = _query(request, "after", "limit", *more)
    return params, read.number(params, "after", default=0) or 0, _limit(params)


def _rows(name: str, found: list[Answer], limit: int) -> Answer:
    """A page: at most ``limit`` rows and ``PAGE_BYTES_MAX`` bytes, and whether there are more."""
    rows = fitting(found[:limit], PAGE_BYTES_MAX)
    return {name: rows, "has_more": len(rows) < len(found)}


def _limit(params: Params) -> int:
    return read.number(params, "limit", at_least=1, at_most=ROWS_MAX, default=ROWS) or ROWS


def _query(request: Request, *known: str) -> Params:
    """The query's params, each once."""
    params: Params = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise RequestError(f"{name[:64]!r} is not known here; known: {', '.join(known) or 'none'}")
        if name in params:
            raise RequestError(f"{name} is given twice")
        params[name] = value
    return params
