"""``pixiu serve --gateways 2``: people at different processes talk, and processes die, freeze and stop."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pixiu.cli.calling import Caller
from tests.certificates import Authority
from tests.e2e.gateways import Node, Person, eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One for all who leave it running."""
    data = tmp_path_factory.mktemp("gateways") / "data"
    made = Node(data, settings=("gateway.lease_ms=1500", "gateway.presence_delay_ms=50"))
    made.start()
    yield made
    made.close()


async def at_both(node: Node, name: str, others: list[Person]) -> Person:
    """Someone who is not at the process where ``others[0]`` is: connections are spread by chance."""
    there = await others[0].gateway()
    for attempt in range(60):
        person = await Person(node, f"{name}{attempt}").__aenter__()
        if await person.gateway() != there:
            return person
        await person.__aexit__()
    raise AssertionError("sixty connections, and all went to one process")


@pytest.mark.feature("R16", "R17", "R18", "R22", "P23")
async def test_people_at_two_processes_share_one_node(node: Node) -> None:
    assert node.url and httpx.get(f"{node.url}/openapi.json").status_code == 200
    async with Person(node, "alice") as alice:
        bob = await at_both(node, "bob", [alice])
        # Messages and receipts.
        sent = await alice.send(bob.user, "hi")
        await eventually(lambda: bob.texts == ["hi"])
        assert bob.messages[sent]["from"] == "alice"
        await bob.ask("receipt", kind="read", message_ids=[sent])
        await eventually(lambda: alice.pushed("receipt"))
        assert "message_id" in await node.act("carl", "send", to=bob.user, text="over HTTP")
        await eventually(lambda: "over HTTP" in bob.texts)
        # Typing and presence.
        for one, other in ((alice, bob), (bob, alice)):
            await one.ask("contact", user=other.user)
        await bob.ask("typing", **{"with": "alice"})
        await eventually(lambda: alice.pushed("typing"))
        assert (await alice.ask("presence"))["result"]["states"] == {bob.user: "online"}
        # Rooms, both classes.
        for person in (alice, bob):
            assert (await person.ask("enter", room="lobby"))["result"]["room"] == "lobby"
        await alice.ask("say", room="lobby", text="live")
        await bob.ask("say", **{"room": "lobby", "text": "reliable", "class": "reliable"})
        await eventually(lambda: {"live", "reliable"} <= set(alice.texts) & set(bob.texts))
        # Whoever leaves is seen to leave.
        await bob.__aexit__()
        await eventually(lambda: alice.pushed("presence") and alice.pushed("presence")[-1].get("state") == "offline")
        assert (await node.audit())["balanced"] is True


@pytest.mark.feature("P15", "P16", "P17", "P06")
async def test_a_killed_process_under_load_loses_nothing_and_doubles_nothing(node: Node) -> None:
    people = [Person(node, f"talker{number}") for number in range(8)]
    gone = node.told("gateway is gone")
    for person in people:
        await person.__aenter__()
    sent: dict[str, list[str]] = {person.user: [] for person in people}
    is_over = asyncio.Event()

    async def talk(sender: Person, receiver: Person) -> None:
        number = 0
        while not is_over.is_set():
            sent[receiver.user].append(await sender.send(receiver.user, f"{sender.user} {number}"))
            number += 1
            await asyncio.sleep(0.01)

    pairs = zip(people, people[1:] + people[:1], strict=True)
    talks = [asyncio.create_task(talk(sender, receiver)) for sender, receiver in pairs]
    await asyncio.sleep(0.7)
    before = node.gateways()
    victim = await people[0].gateway()
    os.kill(before[victim], signal.SIGKILL)
    await eventually(lambda: node.gateways()[victim] != before[victim])
    await asyncio.sleep(1.0)
    is_over.set()
    await asyncio.gather(*talks)
    await eventually(lambda: all(person.is_here.is_set() for person in people))
    await eventually(lambda: all(set(sent[person.user]) <= set(person.messages) for person in people))
    assert sum(person.connects for person in people) > len(people), "some of them were there"
    for person in people:
        own = [text for text in person.texts if not text.startswith(person.user + " ")]
        assert len(own) == len(set(own)) == len(sent[person.user]), "each text once, under one id"
    assert node.told("gateway is gone") == gone + 1
    # Nothing of the dead is left, and the node's books balance.
    for person in people:
        assert len(await node.sessions(person.user)) == 1
        await person.__aexit__()
    report = await node.audit()
    assert report["balanced"] is True


@pytest.mark.feature("B18", "T7")
async def test_a_process_frozen_longer_than_its_lease_is_dead_and_returns_for_its_clients(node: Node) -> None:
    async with Person(node, "first") as first:
        frozen = await first.gateway()
        there = [first]
        elsewhere: list[Person] = []
        for number in range(7):
            person = await Person(node, f"user{number}").__aenter__()
            (there if await person.gateway() == frozen else elsewhere).append(person)
        for person in there:
            await person.ask("enter", room="lobby")
        pid, gone = node.gateways()[frozen], node.told("gateway is gone")
        os.kill(pid, signal.SIGSTOP)
        try:
            await eventually(lambda: node.told("gateway is gone") > gone)
            # They count as away, and their messages wait. The hand that sends may be at the frozen one: ask until not.
            for person in there:
                await _send_somehow(node, person.user, "meanwhile")
            assert all("meanwhile" not in person.texts for person in there)
        finally:
            os.kill(pid, signal.SIGCONT)
        await eventually(lambda: all("meanwhile" in person.texts for person in there))
        await eventually(lambda: all(person.is_here.is_set() for person in there))
        assert node.gateways()[frozen] == pid, "the same process"
        closed = [person for person in there if person.connects > 1]
        told = [person for person in there if person.pushed("resync")]
        assert len(closed) + len(told) == len(there), [person.ends for person in there]
        assert len(closed) == len(there) * 25 // 100
        assert all(person.pushed("kick")[-1]["reason"] == "resync" for person in closed)
        assert all(person.texts.count("meanwhile") == 1 and not person.repeats for person in told)
        # Those who stayed are in their room again, and their connection does what it did before.
        await told[0].ask("say", room="lobby", text="still here")
        await eventually(lambda: all("still here" in person.texts for person in told))
        for person in [*there[1:], *elsewhere]:
            await person.__aexit__()
        assert (await node.audit())["balanced"] is True


async def _send_somehow(node: Node, to: str, text: str) -> None:
    headers = {"Authorization": f"Bearer {node.token('sender')}"}
    params = {"to": to, "text": text, "send_id": f"{to} {text}"}
    while True:
        try:
            async with httpx.AsyncClient() as http:
                answer = await http.post(f"{node.url}/v1/actions/send", json=params, headers=headers, timeout=0.5)
            if answer.status_code == 200:
                return
        except httpx.HTTPError:
            pass


@pytest.mark.feature("T4", "P27")
async def test_under_tls_a_process_that_stays_frozen_is_replaced_and_sigterm_sends_everyone_away(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "authority")
    authority.certify(tmp_path / "chain.pem", tmp_path / "key.pem")
    files = (f"security.tls_certificate={tmp_path / 'chain.pem'}", f"security.tls_key={tmp_path / 'key.pem'}")
    times = ("gateway.lease_ms=1000", "gateway.frozen_ms=2500")
    node = Node(tmp_path / "data", settings=(*files, *times), tls=ssl.create_default_context(cafile=authority.path))
    node.start()
    try:
        # Plaintext is refused; HTTP is passed on as what it was.
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{node.port}/healthz", timeout=5)
        answer = httpx.get(f"{node.url}/healthz", timeout=10, verify=node.tls)  # type: ignore[arg-type]
        assert answer.headers["strict-transport-security"]
        assert Caller(None, None, node.data).get("/v1/admin/stats")["version"]  # as every command with --data asks
        people = [await Person(node, f"user{number}").__aenter__() for number in range(4)]
        before = node.gateways()
        os.kill(before["gateway-1"], signal.SIGSTOP)
        await eventually(lambda: node.gateways()["gateway-1"] != before["gateway-1"], seconds=40)
        assert not is_alive(before["gateway-1"])
        await eventually(lambda: node.told("the node knows this gateway") == 3)
        await eventually(lambda: all(person.is_here.is_set() for person in people))
        await people[0].send("user1", "hi")
        await eventually(lambda: people[1].texts == ["hi"])
        for person in people:
            person.comes_back = False
        pids = node.gateways().values()
        assert await asyncio.to_thread(node.stop) == 0
        assert not any(map(is_alive, pids))
        await eventually(lambda: all(person.pushed("reconnect") for person in people))
        assert not (node.data / "run").exists()
        for person in people:
            await person.__aexit__()
    finally:
        node.close()


async def test_a_node_that_is_killed_takes_its_gateways_with_it_and_starts_again(node: Node) -> None:
    async with Person(node, "bob") as bob:
        pids = list(node.gateways().values())
        node.signal(signal.SIGKILL)
        await asyncio.to_thread(node.wait)
        await eventually(lambda: not any(map(is_alive, pids)))
        assert bob.pushed("reconnect")
        await asyncio.to_thread(node.start)
        await eventually(bob.is_here.is_set)
        await node.act("alice", "send", to="bob", text="again")
        await eventually(lambda: "again" in bob.texts)
