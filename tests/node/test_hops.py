"""How long each hop of a message took: every hop is counted, and nothing that was not on its way."""

from pathlib import Path

import pixiu
from pixiu.api.bridge import answered
from pixiu.im.draft import Actor
from pixiu.model.metric import Histogram


def counted(histogram: Histogram) -> int:
    return sum(histogram.counts)


async def test_every_hop_of_a_message_is_timed(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path, creates_users=True) as node:
        relay, carrier = node.messaging.relay.counters, node.messaging.carrier.counters
        accept = node.messaging.proxy.appends.accept_seconds
        bob = await node.connect("bob")
        before = counted(accept), counted(carrier.apply_seconds)
        await node.send("alice", to="bob", text="hello")
        assert (await bob.receive(timeout_seconds=5))["text"] == "hello"
        assert (counted(relay.deliver_seconds), counted(relay.ack_seconds)) == (1, 0)
        await bob.leave()  # what was taken is acked
        await node.send("alice", to="bob", text="to someone who is away")
        assert (counted(relay.deliver_seconds), counted(relay.ack_seconds)) == (1, 1)
        assert counted(accept) > before[0]
        assert counted(carrier.apply_seconds) > before[1]
        for histogram in (accept, carrier.apply_seconds, relay.deliver_seconds, relay.ack_seconds):
            assert 0 < histogram.total < 60 * counted(histogram)


async def test_what_a_session_sent_itself_times_no_push_of_something_else(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path, creates_users=True) as node:
        deliver = node.messaging.relay.counters.deliver_seconds
        alice = await node.connect("alice")
        assert alice.session is not None
        actor = Actor(alice.session.user, "web", "", alice.session.session_id)
        await answered(lambda done: node.messaging.act(actor, "send", {"to": "bob", "text": "of her own"}, done))
        await node.audit()  # which waits until it is applied
        assert counted(deliver) == 0
        inboxes = [inbox for inboxes in node.messaging.relay._users.values() for inbox in inboxes]
        assert [(inbox.timed_push, inbox.timed_ack) for inbox in inboxes] == [(0, 0)]
        await node.send("bob", to="alice", text="an answer")
        assert (await alice.receive(timeout_seconds=5))["text"] == "an answer"
        assert counted(deliver) == 1
