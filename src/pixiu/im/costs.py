"""What a request costs, in tokens of its user's rate. One token is about the work of one short message.

``cost_of`` follows from the size of the request alone and is charged before any work is done. ``fan_out_cost`` follows
from the size of the group that a record goes to; it is charged before the record is appended. A scheduled send costs
``due_cost`` when it is due. The rows of ``contacts``, ``group`` and ``scheduled`` are charged when they have been
read (``Context.charge_rows``). The table in docs/messaging.md shows the cost of each action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Params
    from pixiu.model.pixiu_pb2 import Record
    from pixiu.ports.groups import Groups

__all__ = ["ROWS_PER_TOKEN", "cost_of", "due_cost", "fan_out_cost", "size_cost"]

ITEMS_PER_TOKEN = 50
"""Entries of lists and objects in the params, such as members and message ids."""

CHARACTERS_PER_TOKEN = 32_768
"""Characters of texts in the params."""

ROWS_PER_TOKEN = 50
"""Messages that an answer may hold, and rows of people, groups or scheduled sends that it holds."""

PLACES_PER_TOKEN = 10
"""Conversations of a sync: each is a read of its own."""

SKIPPED_PER_TOKEN = 500
"""Members that a page by ``offset`` passes over."""

MEMBERS_PER_TOKEN = 50
"""Members of a group whose inboxes a record enters."""

LIST_COST = 2
SEARCH_COST = 4
PAGE_DEFAULT = 100
ROWS_MAX = 1_000


def size_cost(params: Params) -> int:
    """The cost that any action has by the size of its params."""
    items = characters = 0
    for value in params.values():
        kind = type(value)
        if kind is str:
            characters += len(value)  # type: ignore[arg-type]
        elif kind is list or kind is dict:
            items += len(value)  # type: ignore[arg-type]
    return 1 + items // ITEMS_PER_TOKEN + characters // CHARACTERS_PER_TOKEN


def cost_of(action: str, params: Params) -> int:
    """The whole cost of an action. What is wrong with the params is found later, by the action itself."""
    if type(params) is not dict:
        return 1
    more = _MORE.get(action)
    return size_cost(params) if more is None else size_cost(params) + more(params)


def fan_out_cost(groups: Groups, group: int) -> int:
    """The cost of the inbox entries that a record to a group creates; 0 for a large group, which has no inboxes."""
    found = groups.get(group)
    return 0 if found is None or found.is_large else groups.count(group) // MEMBERS_PER_TOKEN


def due_cost(groups: Groups, record: Record) -> int:
    """The cost of a scheduled send when it is due: that of a ``send`` or ``gsend``, by the size the group has then."""
    cost = 1 + len(record.chat) // CHARACTERS_PER_TOKEN
    return cost + fan_out_cost(groups, record.group) if record.group else cost


def _number(params: Params, name: str, default: int, most: int) -> int:
    value = params.get(name)
    if type(value) is str and len(value) <= 19 and value.isascii() and value.isdigit():
        value = int(value)
    return min(value, most) if type(value) is int and value >= 0 else default


def _page(params: Params) -> int:
    return _number(params, "limit", PAGE_DEFAULT, ROWS_MAX) // ROWS_PER_TOKEN


def _sync(params: Params) -> int:
    places = sum(len(value) for name in ("with", "group") if type(value := params.get(name)) is dict)
    return _page(params) + places // PLACES_PER_TOKEN


def _group(params: Params) -> int:
    return LIST_COST + _number(params, "offset", 0, 2**48) // SKIPPED_PER_TOKEN


def _list(_params: Params) -> int:
    return LIST_COST


def _search(params: Params) -> int:
    return SEARCH_COST + _page(params)


_MORE: dict[str, Callable[[Params], int]] = {
    "history": _page,
    "receive": _page,
    "sync": _sync,
    "search": _search,
    "contacts": _list,
    "scheduled": _list,
    "group": _group,
}
