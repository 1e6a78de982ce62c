"""Deliver one inbox to its newest session: in order, at least once, never more than a window ahead of the acks.

Sans-IO: a relay tells a ``Delivery`` what happened by calling the method of that name, and performs the commands that
it returns. The machine never sleeps, reads a clock or touches a store, so a test drives every interleaving by hand::

    delivery = Delivery(InboxSettings())
    delivery.logged_in(session)              # [SetTimer(REQUEST), FetchIds(turn=2, after=0, limit=64)]
    delivery.ids_fetched(2, page, now)       # [SetTimer(REQUEST), FetchBodies(turn=3, message_ids=[...])]
    delivery.bodies_fetched(3, bodies)       # [SetTimer(ACK), PushTo(session_id, pushes)]
    delivery.acked(session_id, through=9)    # [AckInbox(1, 9), CancelTimer()]

One machine per inbox (user, platform), alive while the platform has a session. Three numbers say where it stands, with
``acked_through <= fetched_through <= latest``; ``items`` holds exactly what exists between the first two, the window
first (handed over), then the queue (not yet). States, and what leads out of them::

    OFFLINE          logged_in: FETCHING_IDS
    IDLE             woken with what follows: SENDING; woken without: FETCHING_IDS
    FETCHING_IDS     ids_fetched with entries: FETCHING_BODIES; without: IDLE, or a moment later FETCHING_IDS again
                     when more is known to exist; woken with what follows: SENDING, and the read is void
    FETCHING_BODIES  bodies_fetched: SENDING; the first one missing: a moment later FETCHING_IDS again
    SENDING          acked, all of it: IDLE, or FETCHING_IDS when more is known to exist;
                     ack_timed_out: the window again, at last Kick and OFFLINE; writing: the time begins again
    any              logged_in of a newer session: FETCHING_IDS; logged_out: OFFLINE

A wake that brings the entries that follow ``fetched_through``, with their bodies, is the answer to a read that was
never asked: while a client keeps up, no store is read at all.

Why a turn number: a read that was asked before a logout may be answered after the next login. Answers name the turn
that asked, and one to an older turn is dropped.

What needs no ack of its own counts as acked once it has been handed over and all before it is acked: what the session
sent itself (which is not pushed back to it), and live messages without NEED_ACK. From a backlog everything needs its
ack (C30).

``previous_useq`` is what a client must hold before it takes a push; it answers every push with the last useq that it
holds. It is 0 in the first push after a login: what lies before that was acked, by this client or by another session
of the platform. A client that holds less than the floor of its inbox catches up by sync.

An urgent message that arrives while it cannot be pushed at once leads to ``PushEarly``: the relay hands sessions a copy
without a ``useq``. The machine's numbers and items do not change by that.

A body that is missing is asked for ``tries_max`` more times; then a tombstone is pushed in its place. Nothing is ever
left out in silence. The rules that a simulation switches back to the seeds' errors are small methods of their own,
named with their E numbers.
"""

from pixiu.machines.delivery.commands import (
    NOTHING,
    AckInbox,
    BodyLost,
    CancelTimer,
    Command,
    Expire,
    FetchBodies,
    FetchIds,
    Kick,
    Push,
    PushEarly,
    PushTo,
    Resend,
    SetTimer,
    TimerKind,
)
from pixiu.machines.delivery.delivery import BEATS_PER_READ, Delivery, State

__all__ = [
    "BEATS_PER_READ",
    "NOTHING",
    "AckInbox",
    "BodyLost",
    "CancelTimer",
    "Command",
    "Delivery",
    "Expire",
    "FetchBodies",
    "FetchIds",
    "Kick",
    "Push",
    "PushEarly",
    "PushTo",
    "Resend",
    "SetTimer",
    "State",
    "TimerKind",
]
