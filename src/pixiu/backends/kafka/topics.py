"""The log's topics in Kafka: made with the settings that keep it safe, and looked at for ones that do not."""

from __future__ import annotations

import threading
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.backends.kafka.driver import client_of, common_options, driver, driver_admin, error_of, unavailable
from pixiu.backends.kafka.records import LEDGER, LOG, RETRY, STATE, VIEW_OF
from pixiu.backends.kafka.versions import release_of
from pixiu.backends.tls import tls_context
from pixiu.model.counted import counted
from pixiu.model.errors import NotFound, Unavailable
from pixiu.ports.log import DEAD, NOTIFY, SCHEDULE, TASKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.kafka.address import KafkaAddress

__all__ = ["ADMIN_SECONDS", "MESSAGE_BYTES_MAX", "Finding", "Identity", "Topics"]

ADMIN_SECONDS = 10.0
STEP_SECONDS = 2.0
"""One wait for an answer; between two of them a stop is noticed."""
LOOK_SECONDS = 0.05
_SILENT = frozenset({driver.KafkaError._TRANSPORT, driver.KafkaError._TIMED_OUT})
"""Nobody has answered in the time of a step."""
RELEASES_OLD = ("3.3", "3.4", "3.5", "3.6", "3.7", "3.8")
COPIES_MAX = 3
MESSAGE_BYTES_MAX = 24 * 2**20
VIEW_KEPT_MS = 7 * 86_400_000
"""What can be found in the log again is kept this long in a topic of its own."""
_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_SOME_TIME = {"cleanup.policy": "delete", "retention.ms": str(VIEW_KEPT_MS), "retention.bytes": "-1"}
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "3600000", "segment.bytes": str(16 * 2**20)}
"""Only what is not in the newest segment is compacted, and a new owner reads all of it."""
_SETTINGS = {
    LOG: _FOR_EVER,
    STATE: _COMPACTED,
    VIEW_OF[SCHEDULE]: _FOR_EVER,
    VIEW_OF[DEAD]: _FOR_EVER,
    VIEW_OF[NOTIFY]: _SOME_TIME,
    VIEW_OF[TASKS]: _SOME_TIME,
    RETRY: _SOME_TIME,
    LEDGER: _SOME_TIME,
}


class Identity(NamedTuple):
    """Which log it is: a topic that was made anew has another id."""

    cluster_id: str
    topic_id: str


class Finding(NamedTuple):
    """One thing that ``pixiu doctor`` tells."""

    name: str
    state: str
    """ok, warn, fail."""
    text: str
    advice: str = ""


class Topics:
    """Asks and tells a Kafka about the log's topics. All of it blocks: call it in a thread."""

    def __init__(
        self, address: KafkaAddress, options: dict[str, str], *, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """``is_stopped``: does nobody wait for an answer any more?"""
        self._address = address
        self._is_stopped = is_stopped
        self._trouble = ""
        """What the driver said last of a broker: why it was not let in, for one."""
        more = {"error_cb": self._told}
        self._admin = client_of(driver_admin.AdminClient, common_options(address, options) | more)

    def _told(self, error: Any) -> None:
        self._trouble = str(error.str())

    def _silent(self, said: Any) -> Unavailable:
        """Nobody has answered: with the driver's own words for it, if it has some."""
        self._admin.poll(0)
        return unavailable(self._address, self._trouble or said)

    def brokers(self) -> int:
        """How many there are now."""
        return len(self._cluster().nodes)

    def make(self, *, copies: int = 0, min_insync: int = 0) -> None:
        """Make those that are missing. 0 copies: one per broker, up to three; 0 in sync: a majority of these."""
        names = {each: self._address.topic(each) for each in _SETTINGS}
        there = set(self._there())
        missing = [each for each, name in names.items() if name not in there]
        if not missing:
            return
        count = copies or min(self.brokers(), COPIES_MAX)
        settings = {
            "min.insync.replicas": str(min_insync or count // 2 + 1),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            "message.timestamp.type": "CreateTime",
            "message.timestamp.after.max.ms": str(2**63 - 1),
        }
        new = [driver_admin.NewTopic(names[each], 1, count, config=settings | _SETTINGS[each]) for each in missing]
        for made in self._admin.create_topics(new, operation_timeout=ADMIN_SECONDS).values():
            try:
                made.result(ADMIN_SECONDS)
            except driver.KafkaException as error:
                if error_of(error).code() != driver.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise unavailable(self._address, error_of(error)) from error
            except TimeoutError as error:
                raise unavailable(self._address, "topics were not made in time") from error

    def made_identity(self) -> Identity:
        """Of a log that was made just now: brokers learn of it a little later, one after the other."""
        pause = threading.Event()
        for _ in range(int(ADMIN_SECONDS / LOOK_SECONDS)):
            try:
                return self.identity()
            except NotFound:
                pause.wait(LOOK_SECONDS)
        raise unavailable(self._address, "the brokers do not know the topics that were made")

    def identity(self) -> Identity:
        """Of the log that is there. Raises ``NotFound`` if there is none."""
        name = self._address.topic(LOG)
        if name not in self._there():
            raise NotFound(f"there is no topic {name} at {self._address.hosts}")
        found = self._admin.describe_topics(driver.TopicCollection([name]), request_timeout=ADMIN_SECONDS)[name]
        return Identity(str(self._cluster().cluster_id), str(self._result(found).topic_id))

    def kept_for(self) -> dict[str, str]:
        """How long each topic keeps a record, in words."""
        there = set(self._there())
        return {
            name: _kept_for(self._settings_of(driver_admin.ConfigResource.Type.TOPIC, name))
            for name in map(self._address.topic, _SETTINGS)
            if name in there
        }

    def look(self) -> list[Finding]:
        """What to know of the brokers and of how the log lies there."""
        brokers = self.brokers()
        found = [self._brokers()]
        name = self._address.topic(LOG)
        if name not in self._there():
            found.append(Finding(f"kafka {name}", "ok", "is not there yet: the first start makes it"))
            return found
        described = self._admin.describe_topics(driver.TopicCollection([name]), request_timeout=ADMIN_SECONDS)[name]
        partitions = self._result(described).partitions
        settings = self._settings_of(driver_admin.ConfigResource.Type.TOPIC, name)
        found.append(_partitions(name, len(partitions)))
        if partitions:
            copies, in_sync = len(partitions[0].replicas), len(partitions[0].isr)
            found += _copies(name, copies, in_sync, settings, brokers)
        found += _kept(name, settings)
        state = self._address.topic(STATE)
        found.append(_compacted(state, self._settings_of(driver_admin.ConfigResource.Type.TOPIC, state)))
        return found

    def _brokers(self) -> Finding:
        """How many, and which release."""
        nodes = self._cluster().nodes
        tls = tls_context(self._address.tls, "engines.log")
        releases = sorted(filter(None, {release_of(node.host, int(node.port), tls) for node in nodes}))
        release = " and ".join(releases) or "unknown"
        text = f"{counted(len(nodes), 'broker')} at {self._address.hosts}, release {release}"
        old = any(each in RELEASES_OLD for each in releases)
        advice = "tested with 4.1; older ones end transactions of a dead owner later: upgrade" if old else ""
        return Finding("kafka", "warn" if old else "ok", text, advice)

    def _settings_of(self, kind: object, name: str) -> dict[str, str]:
        resource = driver_admin.ConfigResource(kind, name)
        (described,) = self._admin.describe_configs([resource], request_timeout=ADMIN_SECONDS).values()
        return {key: str(entry.value) for key, entry in self._result(described).items()}

    def _there(self) -> list[str]:
        tries = _steps()
        while True:
            try:
                return list(self._admin.list_topics(timeout=min(STEP_SECONDS, ADMIN_SECONDS)).topics)
            except driver.KafkaException as error:
                tries -= 1
                if tries <= 0 or self._is_stopped() or error_of(error).code() not in _SILENT:
                    raise self._silent(error_of(error)) from error

    def _cluster(self) -> Any:
        return self._result(self._admin.describe_cluster(request_timeout=ADMIN_SECONDS))

    def _result(self, future: Any) -> Any:
        tries = _steps()
        while True:
            try:
                return future.result(min(STEP_SECONDS, ADMIN_SECONDS))
            except driver.KafkaException as error:
                if error_of(error).code() == driver.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise NotFound(f"a broker of {self._address.hosts} does not know that topic") from error
                raise self._silent(error_of(error)) from error
            except TimeoutError as error:
                tries -= 1
                if tries <= 0 or self._is_stopped():
                    raise self._silent("no answer in time") from error


def _steps() -> int:
    return ceil(ADMIN_SECONDS / STEP_SECONDS)


def _kept_for(settings: dict[str, str]) -> str:
    if settings.get("cleanup.policy") == "compact":
        return "until it is compacted: the newest of each key stays"
    kept_ms, kept_bytes = int(settings.get("retention.ms", "-1")), int(settings.get("retention.bytes", "-1"))
    bounds = [f"{kept_ms / 86_400_000:g} days"] if kept_ms >= 0 else []
    bounds += [f"as long as it has {kept_bytes} bytes"] if kept_bytes >= 0 else []
    return ", or ".join(bounds) or "for ever"


def _partitions(name: str, count: int) -> Finding:
    if count == 1:
        return Finding(f"kafka {name}", "ok", "one partition, in order")
    advice = "the log needs one order: make the topic anew with one partition, or name another prefix"
    return Finding(f"kafka {name}", "fail", f"{count} partitions", advice)


def _copies(name: str, copies: int, in_sync: int, settings: dict[str, str], brokers: int) -> list[Finding]:
    found = []
    title = f"kafka {name} copies"
    text = f"{copies}, {in_sync} in sync"
    if copies == 1:
        advice = "a broker's disk is all there is: run three, then kafka-reassign-partitions with three replicas"
        found.append(Finding(title, "warn", text, advice))
    elif in_sync < copies:
        found.append(Finding(title, "warn", text, "a broker is down or behind: look at its log"))
    else:
        found.append(Finding(title, "ok", text))
    needed = int(settings.get("min.insync.replicas", "1"))
    title = f"kafka {name} min.insync.replicas"
    if needed > in_sync:
        advice = "nothing is accepted until more brokers are in sync: start them"
        found.append(Finding(title, "fail", f"{needed}, and {in_sync} are in sync", advice))
    elif copies > 1 and needed < 2:
        advice = f"one copy counts as written: kafka-configs --alter --topic {name} --add-config min.insync.replicas=2"
        found.append(Finding(title, "warn", str(needed), advice))
    elif needed >= copies > 1:
        advice = f"one broker that is down stops all sends: set it to {copies - 1}, or add a broker ({brokers} now)"
        found.append(Finding(title, "warn", f"{needed} of {copies}", advice))
    else:
        found.append(Finding(title, "ok", str(needed)))
    title = f"kafka {name} unclean.leader.election"
    if settings.get("unclean.leader.election.enable") == "true":
        change = f"kafka-configs --alter --topic {name} --add-config unclean.leader.election.enable=false"
        advice = f"it loses accepted messages: {change}"
        found.append(Finding(title, "fail", "enabled", advice))
    else:
        found.append(Finding(title, "ok", "disabled"))
    return found


def _compacted(name: str, settings: dict[str, str]) -> Finding:
    """What waits for its time, and positions, are the newest of their keys however old."""
    policy = settings.get("cleanup.policy", "delete")
    if policy == "compact":
        return Finding(f"kafka {name} cleanup", "ok", policy)
    change = f"kafka-configs --alter --topic {name} --add-config cleanup.policy=compact"
    return Finding(f"kafka {name} cleanup", "fail", policy, f"scheduled messages and positions get lost: {change}")


def _kept(name: str, settings: dict[str, str]) -> list[Finding]:
    """The log is the truth: what Kafka throws away is gone."""
    found = []
    change = f"kafka-configs --alter --topic {name} --add-config"
    if "compact" in settings.get("cleanup.policy", "delete"):
        advice = f"compaction removes messages: {change} cleanup.policy=delete"
        found.append(Finding(f"kafka {name} cleanup", "fail", settings["cleanup.policy"], advice))
    for key in ("retention.ms", "retention.bytes"):
        value = settings.get(key, "-1")
        if value == "-1":
            found.append(Finding(f"kafka {name} {key}", "ok", "no limit"))
        else:
            advice = f"older messages are lost for rebuilds and audits: {change} {key}=-1"
            found.append(Finding(f"kafka {name} {key}", "fail", value, advice))
    return found
