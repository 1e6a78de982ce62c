"""``pixiu cluster split``: 1, 2, 4 partitions of real processes while people talk, and nothing is missed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pixiu import Publisher
from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config import LinkSettings, Settings
from pixiu.config.cluster import read_cluster_file
from pixiu.links.member import COUNT_KEY, count_path, folder_of
from pixiu.model.errors import ConfigError, Conflict, NotFound, PixiuError, RequestError, Unavailable
from pixiu.node.cluster import splitting
from pixiu.node.cluster.layout import Layout
from pixiu.node.cluster.plans import Doubling, SplitPlan, read_plan
from pixiu.pipeline.plan import Bounds, Heat, make_plan
from pixiu.ports.registry import Write
from pixiu.runtime.scheduler import LoopScheduler
from tests.cluster.processes import Cluster
from tests.e2e.cluster import FAST, Listener, RoleRun, Roles

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.node.cluster.layout import ChildPlan

SETTINGS = ", ".join(f'"{key}" = {value}' for key, value in (setting.split("=") for setting in FAST))
ROOMS = f"""
name = "split"
zookeeper = {{ nodes = 1 }}
[roles.router]
settings = {{ {SETTINGS} }}
[roles.broker]
replicas = 2
settings = {{ {SETTINGS} }}
[roles.proxy]
replicas = 2
settings = {{ {SETTINGS} }}
[roles.gateway]
settings = {{ {SETTINGS} }}
"""
ROOM_NAMES = [str(number) for number in range(1, 9)]
"""Rooms called 1, 2, … are their own numbers: all partitions have some."""


class _Child:
    """A process that is not one."""

    def __init__(self, plan: ChildPlan) -> None:
        self.plan = plan

    def last_words(self) -> str:
        return "nothing to say"


class _Supervisor:
    """What ``split_role`` needs of a supervisor."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.children: dict[str, _Child] = {}
        self.added: list[str] = []
        self.lines: list[str] = []
        self.partitions: dict[str, int] = {}

    def add(self, plan: ChildPlan) -> _Child:
        self.added.append(plan.name)
        self.children[plan.name] = _Child(plan)
        return self.children[plan.name]

    async def remove(self, child: _Child) -> None:
        del self.children[child.plan.name]

    def say(self, line: str) -> None:
        self.lines.append(line)

    def keep_partitions(self, role: str, count: int) -> None:
        self.partitions[role] = count


async def _written(session: Any, write: Write) -> None:
    answer: asyncio.Future[int | PixiuError] = asyncio.get_running_loop().create_future()
    session.write(write, answer.set_result)
    assert not isinstance(await answer, PixiuError)


@pytest.mark.feature("X16", "X18")
async def test_what_is_refused_or_not_ready_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "READY_SECONDS", 0.2)
    (tmp_path / "c.toml").write_text(ROOMS.replace("{ nodes = 1 }", '"zk://127.0.0.1:1/pubsub"'), encoding="utf-8")
    supervisor: Any = _Supervisor(Layout(tmp_path / "c", read_cluster_file(tmp_path / "c.toml")))
    scheduler = LoopScheduler(asyncio.get_running_loop())
    session: Any = MemoryRegistry(scheduler).open()
    with pytest.raises(RequestError, match="proxy is not split"):
        await splitting.split_role(supervisor, session, "proxy", None)
    with pytest.raises(NotFound, match="no partition count"):
        await splitting.split_role(supervisor, session, "broker", None)
    await _written(session, Write(count_path("/pubsub", "broker"), {COUNT_KEY: 1}, -1))
    with pytest.raises(RequestError, match="double to 2, not to 4"):
        await splitting.split_role(supervisor, session, "broker", 4)
    assert not supervisor.added
    with pytest.raises(Conflict, match="partition 1 is not ready"):
        await splitting.split_role(supervisor, session, "broker", None)
    assert supervisor.added == ["broker-1-0", "broker-1-1"]
    assert not supervisor.children, "they are stopped again"
    for _ in range(2):
        session.register(folder_of("/pubsub", "broker", 1), {"state": "Running"}, lambda _result: None)
    done = await splitting.split_role(supervisor, session, "broker", None)
    assert (done["from"], done["to"]) == (1, 2)
    assert supervisor.partitions == {"broker": 2}
    with pytest.raises(Conflict, match="not over"):
        await splitting.split_role(supervisor, session, "broker", None)
    scheduler.close()


class _Forgetful:
    """A registry that does what it is told, and whose answer to a change is lost. ``is_mute``: the next ones, too."""

    def __init__(self, session: Any, *, is_mute: bool = False) -> None:
        self._session = session
        self._is_mute = is_mute
        self._is_lost = False

    def read(self, path: str, done: Any) -> None:
        if self._is_lost and self._is_mute:
            done(Unavailable("the registry did not answer"))
        else:
            self._session.read(path, done)

    def write(self, write: Write, done: Any) -> None:
        self._is_lost = True
        self._session.write(write, lambda _result: done(Unavailable("the registry did not answer")))


@pytest.mark.feature("X16")
async def test_a_flip_whose_answer_is_lost_takes_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(ROOMS.replace("{ nodes = 1 }", '"zk://127.0.0.1:1/pubsub"'), encoding="utf-8")
    scheduler = LoopScheduler(asyncio.get_running_loop())
    for is_mute in (False, True):
        supervisor: Any = _Supervisor(Layout(tmp_path / "c", read_cluster_file(tmp_path / "c.toml")))
        session: Any = MemoryRegistry(scheduler).open()
        await _written(session, Write(count_path("/pubsub", "broker"), {COUNT_KEY: 1}, -1))
        for _ in range(2):
            session.register(folder_of("/pubsub", "broker", 1), {"state": "Running"}, lambda _result: None)
        forgetful: Any = _Forgetful(session, is_mute=is_mute)
        if is_mute:
            with pytest.raises(splitting.Unfinished, match="not known whether broker has doubled"):
                await splitting.split_role(supervisor, forgetful, "broker", None)
        else:
            assert (await splitting.split_role(supervisor, forgetful, "broker", None))["to"] == 2
        assert list(supervisor.children) == ["broker-1-0", "broker-1-1"], "others ask them from now on"
        assert supervisor.partitions == {"broker": 2}
    scheduler.close()


@pytest.mark.feature("X16", "X23")
async def test_a_plan_is_applied_once_and_what_is_so_already_is_left(tmp_path: Path) -> None:
    heats = [Heat("r:stadium", 600, 60 * 60_000, 20_000), Heat("r:hall", 60, 60 * 200_000, 500), Heat("u:1:2", 1, 2, 2)]
    bounds = Bounds(broker_deliveries=50_000)
    plan = {"version": 1, **make_plan(heats, partitions=1, bounds=bounds)}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    found = read_plan(path)
    assert set(found.rooms) == {"stadium", "hall"}
    assert found.doublings == (Doubling("broker", 1, 2),)
    (tmp_path / "c.toml").write_text(ROOMS.replace("{ nodes = 1 }", '"zk://127.0.0.1:1/pubsub"'), encoding="utf-8")
    supervisor: Any = _Supervisor(Layout(tmp_path / "c", read_cluster_file(tmp_path / "c.toml")))
    scheduler = LoopScheduler(asyncio.get_running_loop())
    session: Any = MemoryRegistry(scheduler).open()
    await _written(session, Write(count_path("/pubsub", "broker"), {COUNT_KEY: 1}, -1))
    for _ in range(2):
        session.register(folder_of("/pubsub", "broker", 1), {"state": "Running"}, lambda _result: None)
    done = await splitting.apply_plan(supervisor, session, found)
    assert done["lines"][:2] == [f"room {room!r} becomes big" for room in found.rooms]
    assert "2 partitions" in done["lines"][2]
    again = await splitting.apply_plan(supervisor, session, found)
    assert all(line.startswith("left as it is") for line in again["lines"])
    other = found._replace(doublings=(Doubling("broker", 4, 8), Doubling("relay", 1, 2)))
    with pytest.raises(Conflict, match="made for 4"):
        await splitting.apply_plan(supervisor, session, other)
    only = await splitting.apply_plan(
        supervisor, session, SplitPlan((), (Doubling("relay", 1, 2), Doubling("pi", 1, 2)))
    )
    assert only["lines"] == [
        "left as it is: the registry has no partition count of relay; start one of it first",
        "left as it is: pi is not split here",
    ]
    scheduler.close()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("[]", "no plan of version 1"),
        ('{"version": 2}', "no plan of version 1"),
        ('{"version": 1, "double": []}', "virtual_rooms must be a list"),
        ('{"version": 1, "virtual_rooms": [{"room": "a", "slices": 3}], "double": []}', "into 64, not 3"),
        ('{"version": 1, "virtual_rooms": [{"slices": 64}], "double": []}', "room"),
        ('{"version": 1, "virtual_rooms": [{"room": "", "slices": 64}], "double": []}', "room"),
        ('{"version": 1, "virtual_rooms": [], "double": [{"role": "broker", "from": 1, "to": 3}]}', "power of two"),
        ('{"version": 1, "virtual_rooms": [], "double": [{"role": "broker", "from": "1", "to": 2}]}', "a doubling has"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_plan(tmp_path / "none.json")


async def _talk(publisher: Publisher, is_over: asyncio.Event) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {room: [] for room in ROOM_NAMES}
    number = 0
    while not is_over.is_set():
        for room in ROOM_NAMES:
            number += 1
            await publisher.publish(room, f"{number}", sender=room, reliable=True)
            said[room].append(f"{number}")
    return said


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.feature("X15", "X16", "X17", "X18", "X71")
@pytest.mark.parametrize("path", ["direct", "relay"])
async def test_partitions_double_twice_while_people_talk(tmp_path: Path, path: str) -> None:
    text, roles_to_split = ROOMS, ("broker", "router")
    if path == "relay":
        relays = f"[roles.relay]\nsettings = {{ {SETTINGS} }}\n[roles.broker]"
        text = ROOMS.replace("[roles.broker]", relays).replace('{ "links', '{ "links.room_path" = "relay", "links')
        roles_to_split = ("broker", "relay")
    with Cluster(tmp_path, text) as cluster:
        nodes = cluster.nodes()
        roles = Roles(tmp_path, cluster.registry)
        roles.data = cluster.folder / "nodes" / "gateway"
        gateway: Any = RoleRun.__new__(RoleRun)
        gateway._said = {"port": int(nodes["gateway-0-0"]["address"].rpartition(":")[2])}
        links = dict(setting.removeprefix("links.").split("=") for setting in FAST if setting.startswith("links."))
        settings = Settings(links=LinkSettings(**{key: json.loads(value) for key, value in links.items()}))
        secret = (cluster.folder / "secret").read_text(encoding="utf-8").strip()
        async with (
            Listener(roles, gateway, "ann") as ann,
            Listener(roles, gateway, "bob") as bob,
            Publisher(cluster.registry, secret=secret, settings=settings) as publisher,
        ):
            for person in (ann, bob):
                for room in ROOM_NAMES:
                    assert "result" in await person.ask("enter", room=room)
            await asyncio.sleep(1)
            is_over = asyncio.Event()
            talking = asyncio.create_task(_talk(publisher, is_over))
            for role, to in ((role, to) for to in (2, 4) for role in roles_to_split):
                refused = await asyncio.to_thread(cluster.call, "split", role, "--to", "3")
                assert refused.returncode == 1 and "not 3" in refused.stderr
                done = await asyncio.to_thread(cluster.run, "split", role, "--wait", "--json", timeout_s=150)
                assert done["to"] == to
            await asyncio.sleep(1)
            is_over.set()
            said = await talking
            await asyncio.sleep(0.5)
            for room, texts in said.items():
                assert len(texts) > 5
                assert ann.texts(room) == texts
                assert bob.texts(room) == texts
        assert {name for name in cluster.nodes() if name.startswith("broker")} == {
            f"broker-{partition}-{replica}" for partition in range(4) for replica in range(2)
        }
    with Cluster(tmp_path, text) as cluster:  # the next start knows
        assert sum(name.startswith(roles_to_split[1]) for name in cluster.nodes()) == 4
