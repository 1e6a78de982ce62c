"""Gaps of a client: kept, told, and closed page by page; and the sync by conversation that finds them.

Seed 004's cases, seen from a client: a conversation that missed little comes forward from the last message here; one
that missed much, or is new here, begins with the newest page, and a gap below it is kept until somebody asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from pixiu.machines.client_session import INBOX
from pixiu.machines.client_session.values import Gap, Message, Page, Place, number
from pixiu.model.errors import PixiuError, RequestError, Unavailable
from pixiu.model.ids import snowflake_time_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.sdk.client import Client
    from pixiu.sdk.shelves import Shelf
    from pixiu.sdk.store import Store

__all__ = ["CatchingUp"]

log = logging.getLogger(__name__)

GAPS_MAX = 1_000
"""Gaps that are kept without a store; the oldest are forgotten, and ``catch_up`` finds them again."""
PLACES = 10
"""Conversations that share one page of a sync."""
PAGE = 100
PAGES = 10
"""Pages of all private messages that are read at once after a short absence, or looked through after a long one."""
PLACES_MAX = 1_000
"""Conversations that are known without a store and without being on a list; the oldest are forgotten."""
AGAIN_SECONDS = 2.0
AGAIN_SECONDS_MAX = 60.0
"""What an inbox has lost is asked for again after this, then after twice as long, up to the bound."""
FORWARD_MS = 86_400_000
"""Whoever was away for less than this reads on from where it was; others begin with the newest."""


class CatchingUp:
    """The gaps of one client."""

    def __init__(self, client: Client, store: Store | None, shelf: Shelf) -> None:
        self._client = client
        self._store = store
        self._shelf = shelf
        self._gaps: dict[tuple[Place, int], Gap] = {}
        self._places: dict[Place, None] = {}
        self._owed: int | None = None
        self._is_more_owed = False
        self._paying: asyncio.Lock = asyncio.Lock()
        self._catching: asyncio.Lock = asyncio.Lock()
        self._closing: asyncio.Lock = asyncio.Lock()

    def gaps(self) -> list[Gap]:
        """What is missing, newest first."""
        if self._store is not None:
            return self._store.gaps()
        return sorted(self._gaps.values(), key=lambda gap: -gap.before)

    def found(self, gap: Gap) -> bool:
        """Keep a gap. False: it is one of the inbox, and only a sync tells where it is."""
        if gap.place.name == INBOX:
            return False
        if self._store is not None:
            try:
                self._store.put_gap(gap)
            except Unavailable as error:
                log.error("a gap could not be kept", extra={"reason": str(error), "place": gap.place.name})
        else:
            self._gaps[gap.place, gap.after] = gap
            if len(self._gaps) > GAPS_MAX:
                del self._gaps[next(iter(self._gaps))]
        return True

    def owe(self, after: int) -> None:
        """The inbox has lost something behind the message ``after``: it stays owed until it was asked for."""
        self._owed = after if self._owed is None else min(after, self._owed)
        self._is_more_owed = True
        self.keep_owed()

    def keep_owed(self) -> None:
        """Write down what is owed, once the store is known to be this user's; it may know of more from before."""
        if self._store is None or not self._client.is_known:
            return
        if self._owed is None or (self._store.owed is not None and self._store.owed < self._owed):
            self._owed = self._store.owed
        if self._owed != self._store.owed:
            try:
                self._store.owe(self._owed)
            except Unavailable as error:
                log.error("a gap of the inbox could not be kept", extra={"reason": str(error)})

    @property
    def is_owed(self) -> bool:
        """Is there something to ask for?"""
        return self._owed is not None

    async def pay(self) -> None:
        """Ask for what is owed, until it is here: a server that is busy, or away, is asked again later."""
        wait = AGAIN_SECONDS
        async with self._paying:
            while self._owed is not None:
                self._is_more_owed = False
                try:
                    await self.catch_up(self._owed)
                except Unavailable as error:
                    if self._client.is_over:
                        return
                    log.warning("catching up failed", extra={"reason": str(error), "again_seconds": wait})
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, AGAIN_SECONDS_MAX)
                    continue
                except PixiuError as error:
                    log.warning("catching up failed", extra={"reason": str(error)})
                    return  # it stays owed, and the next session tries again
                if not self._is_more_owed:
                    self._owed = None
                    if self._store is not None:
                        self._store.owe(None)

    async def close(self, *, with_: str | None = None, group: str | None = None) -> AsyncIterator[Page]:
        """Pages of what is missing; a gap shrinks with each of them, and is gone with the last."""
        async with self._closing:
            for gap in self.gaps():
                if with_ is not None and gap.place != Place("with", with_):
                    continue
                if group is not None and gap.place != Place("group", group):
                    continue
                left: Gap | None = gap
                while left is not None:
                    raw, left = await self._close_page(left)
                    yield Page.read(raw)

    async def _close_page(self, gap: Gap) -> tuple[dict[str, Any], Gap | None]:
        where: dict[str, Any] = {"with" if gap.place.kind == "with" else "group": gap.place.name}
        raw = await self._client.act("history", before=str(gap.before), after=str(gap.after), limit=PAGE, **where)
        rest = gap.rest(number(raw.get("min")), reaches_end=not raw.get("has_more"))
        if self._store is not None:
            self._store.close_gap(gap, raw.get("messages") or (), rest)
        else:
            self._gaps.pop((gap.place, gap.after), None)
            if rest is not None:
                self._gaps[rest.place, rest.after] = rest
        return raw, rest

    async def close_and_show(self) -> None:
        """Close everything, and let the program see what was missing, oldest first within a page."""
        async with self._closing:
            for gap in self.gaps():
                left: Gap | None = gap
                while left is not None:
                    await self._client.room_for_more()
                    raw, left = await self._close_page(left)
                    self._show(raw.get("messages") or [])

    def _show(self, messages: list[dict[str, Any]]) -> None:
        shown = [each for each in messages if each.get("kind") != "delete" and self._client.is_news(each)]
        self._shelf.put_late(sorted(shown, key=lambda each: number(each.get("message_id"))))
        self._client.shown_late()

    def note(self, place: Place) -> None:
        """There is such a conversation."""
        if place not in self._places:
            self._places[place] = None
            if len(self._places) > PLACES_MAX:
                del self._places[next(iter(self._places))]

    async def catch_up(self, after: int) -> None:
        """See ``Client.catch_up``."""
        async with self._catching:
            contacts = await self._client.contacts()
            places = {contact.place for contact in (*contacts.contacts, *contacts.others)} | set(self._places)
            if self._store is not None:
                places |= set(self._store.conversations())
            private_after: int | None = after
            if after:
                is_short = time.time() * 1000 - snowflake_time_ms(after) < FORWARD_MS
                found, private_after = await (self._forward(after) if is_short else self._peers(after))
                places |= found
            lasts = {place: after for place in places if place.kind == "group"}
            if private_after is not None:
                lasts |= {place: private_after for place in places if place.kind == "with"}
            ordered = sorted(lasts.items())
            for start in range(0, len(ordered), PLACES):
                await self._sync(dict(ordered[start : start + PLACES]))

    async def _forward(self, after: int) -> tuple[set[Place], int | None]:
        """Private messages of all conversations from here on, also of people who are on no list.

        Returns who was in them, and where it stopped if there are more than that.
        """
        found: set[Place] = set()
        for _ in range(PAGES):
            raw = await self._client.act("history", after=str(after), direction="forward", limit=PAGE)
            messages = raw.get("messages") or []
            found |= {Message.read(each).place(self._client.name) for each in messages}
            self._show(messages)
            await self._client.room_for_more()
            if not raw.get("has_more"):
                return found, None
            after = number(raw.get("max"))
        return found, after

    async def _peers(self, after: int) -> tuple[set[Place], int]:
        """Who was there lately: each conversation will be asked for its newest page."""
        found: set[Place] = set()
        before: str | None = None
        for _ in range(PAGES):
            raw = await self._client.act("history", after=str(after), before=before, direction="backward", limit=PAGE)
            found |= {Message.read(each).place(self._client.name) for each in raw.get("messages") or ()}
            if not raw.get("has_more"):
                break
            before = str(raw.get("min"))
        return found, after

    async def _sync(self, lasts: dict[Place, int]) -> None:
        """A few conversations, until there is nothing newer."""
        while lasts:
            try:
                raw = await self._ask(lasts)
            except RequestError:
                if len(lasts) == 1:
                    return  # no member any more, or no such user: nothing to catch up with
                for place, last in lasts.items():
                    await self._sync({place: last})
                return
            messages = raw.get("messages") or []
            for each in raw.get("gaps") or ():
                gap = Gap.read(each)
                if gap is not None:
                    self._client.show_gap(gap)
            self._show(messages)
            grown: dict[Place, int] = {}
            for message in map(Message.read, messages):
                place = message.place(self._client.name)
                if message.message_id > max(lasts.get(place, 0), grown.get(place, 0)):
                    grown[place] = message.message_id
            lasts = {place: last for place, last in grown.items() if place in lasts} if raw.get("has_more") else {}
            await self._client.room_for_more()

    async def _ask(self, lasts: dict[Place, int]) -> dict[str, Any]:
        peers = {place.name: str(last) for place, last in lasts.items() if place.kind == "with"}
        groups = {place.name: str(last) for place, last in lasts.items() if place.kind == "group"}
        return await self._client.act("sync", with_=peers or None, group=groups or None, limit=PAGE)
