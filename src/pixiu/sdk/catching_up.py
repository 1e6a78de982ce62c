"""Gaps of a client: kept, told, and closed page by page; and the sync by conversation that finds them.

Seed 004's cases, seen from a client: a conversation that missed little comes forward from the last message here; one
that missed much, or is new here, begins with the newest page, and a gap below it is kept until somebody asks for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pixiu.machines.client_session import INBOX
from pixiu.machines.client_session.values import Contacts, Gap, Message, Page, Place, number
from pixiu.model.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.sdk.client import Client
    from pixiu.sdk.shelves import Shelf
    from pixiu.sdk.store import Store

__all__ = ["CatchingUp"]

GAPS_MAX = 1_000
"""Gaps that are kept without a store; the oldest are forgotten, and ``catch_up`` finds them again."""
PLACES = 10
"""Conversations that share one page of a sync."""
PAGE = 100


class CatchingUp:
    """The gaps of one client."""

    def __init__(self, client: Client, store: Store | None, shelf: Shelf) -> None:
        self._client = client
        self._store = store
        self._shelf = shelf
        self._gaps: dict[tuple[Place, int], Gap] = {}
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
            self._store.put_gap(gap)
        else:
            self._gaps[gap.place, gap.after] = gap
            if len(self._gaps) > GAPS_MAX:
                del self._gaps[next(iter(self._gaps))]
        return True

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

    async def catch_up(self, after: int) -> None:
        """See ``Client.catch_up``."""
        async with self._catching:
            contacts = Contacts.read(await self._client.act("contacts"))
            places = {contact.place for contact in (*contacts.contacts, *contacts.others)}
            if self._store is not None:
                places |= {place for place in self._store.conversations() if place.kind != "room"}
            ordered = sorted(places)
            for start in range(0, len(ordered), PLACES):
                await self._sync(dict.fromkeys(ordered[start : start + PLACES], after))

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
