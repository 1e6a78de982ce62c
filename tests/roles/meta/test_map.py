"""The map of a cluster, from what the registry lists and what processes say."""

from typing import Any

import pytest

from pixiu.roles.meta.map import GONE_MS, METRICS, REPLACED_MS, STALE_MS, ClusterMap, samples_of

NOW = 1_760_000_000_000
PEER = {"name": "broker-0-3", "role": "broker", "rtt_ms": 0.4, "success": 0.98, "standing": "usable"}


def entry(name: str, role: str, **more: object) -> tuple[dict[str, object], int]:
    return {"name": name, "role": role, "partition": 0, "address": "127.0.0.1:1", "state": "Running", **more}, 0


FOLDER: dict[str, tuple[dict[str, object], int]] = {
    "broker/partition_num": ({"count": 2}, 1),
    "broker/partition0/0000000003": entry("broker-0-3", "broker", admin="127.0.0.1:91"),
    "proxy/partition0/0000000001": entry("proxy-0-1", "proxy", admin="127.0.0.1:92"),
    "probe/partition0/0000000001": entry("probe-0-1", "probe", admin="127.0.0.1:93", address="127.0.0.1:3"),
    "shard/partition0/0000000001": entry("shard-0-0", "shard"),
    "gateway/partition0/0000000009": entry("gateway-0-9", "gateway", probe=True, address="127.0.0.1:3"),
    "shard/partition0/ctl": ({"epoch": 3, "leader": "shard-0-0"}, 7),
    "rooms/big": ({"rooms": {"stadium": {"index": 0, "phase": "split", "clean_at": 1}}}, 2),
    "slots/0000000001": ({}, 0),
}


def text(messages: int, deliveries: int) -> str:
    return (
        "# HELP pixiu_links_messages_total x\n"
        f'pixiu_links_messages_total{{direction="in"}} {messages}.0\n'
        f'pixiu_links_messages_total{{direction="out"}} {2 * messages}.0\n'
        f"pixiu_broker_deliveries_total {deliveries}.0\npixiu_broker_rooms 3.0\nnonsense\n"
    )


def filled() -> ClusterMap:
    cluster = ClusterMap()
    assert cluster.listed(FOLDER, NOW) == {
        "broker/partition0/0000000003": "127.0.0.1:91", "proxy/partition0/0000000001": "127.0.0.1:92",
        "probe/partition0/0000000001": "127.0.0.1:93",
    }  # fmt: skip
    hot = [{"room": "lobby", "deliveries": 10.0, "messages": 2.0, "members": 5}]
    paths = {"paths": [{"proxy": "proxy-0-1", "success": 0.5}], "alarms": ["broker-0-3: no probe comes back"]}
    for at_ms, messages in ((NOW, 100), (NOW + 2_000, 300)):
        cluster.heard("broker/partition0/0000000003", at_ms, text(messages, 10 * messages), [], hot, {})
        cluster.heard("proxy/partition0/0000000001", at_ms, text(messages, 0), [PEER], [], {})
        cluster.heard("probe/partition0/0000000001", at_ms, "", [], [], paths)
    return cluster


def test_gateway_has_the_address_of_its_console() -> None:
    cluster = ClusterMap()
    named = {
        "gateway/partition0/0000000001": entry("gateway-0-1", "gateway", node="127.0.0.1:8401"),
        "gateway/partition0/0000000002": entry("gateway-0-2", "gateway", node="10.0.0.2:8402", tls=True),
        "proxy/partition0/0000000003": entry("proxy-0-3", "proxy", node="10.0.0.2:1"),
    }
    cluster.listed(named, NOW)
    found = {node["name"]: node.get("clients") for node in cluster.content(NOW)["nodes"]}
    assert found == {
        "gateway-0-1": "http://127.0.0.1:8401", "gateway-0-2": "https://10.0.0.2:8402", "proxy-0-3": None,
    }  # fmt: skip


@pytest.mark.feature("X31")
def test_nodes_links_rates_and_alarms_in_one_place() -> None:
    cluster = filled()
    content = cluster.content(NOW + 2_000)
    by_name = {node["name"]: node for node in content["nodes"]}
    assert set(by_name) == {"broker-0-3", "proxy-0-1", "probe-0-1", "shard-0-0"}
    broker = by_name["broker-0-3"]
    assert (broker["role"], broker["replica"], broker["state"], broker["answers"]) == ("broker", 3, "Running", True)
    assert broker["rates"]["messages_in"] == 100.0
    assert {name for name, node in by_name.items() if node["leads"]} == {"shard-0-0"}
    assert broker["rates"]["messages_out"] == 200.0
    assert broker["rates"]["deliveries"] == 1_000.0
    assert broker["gauges"] == {"rooms": 3.0}
    assert not by_name["shard-0-0"]["answers"]
    assert content["partitions"] == {"broker": {"count": 2, "version": 1}}
    assert content["links"] == [
        {"from": "proxy-0-1", "to": "broker-0-3", "role": "broker", "rtt_ms": 0.4, "success": 0.98,
         "standing": "usable"},
    ]  # fmt: skip
    assert content["hot_rooms"] == [{"room": "lobby", "deliveries": 10.0, "messages": 2.0, "members": 5}]
    assert content["big_rooms"] == [{"room": "stadium", "phase": "split"}]
    assert content["alarms"] == ["broker-0-3: no probe comes back"]
    values = cluster.snapshot(NOW + 2_000)
    assert values.keys() == {metric.name for metric in METRICS}
    assert values["pixiu_cluster_link_success"] == {("proxy", "broker"): 0.98}
    assert values["pixiu_cluster_path_success"] == 0.5


def test_who_is_silent_or_gone_is_not_shown_as_present() -> None:
    cluster = filled()
    content = cluster.content(NOW + 2_000 + STALE_MS)
    assert not any(node["answers"] or node["rates"] for node in content["nodes"])
    assert not content["links"] and not content["alarms"]
    cluster.listed({path: each for path, each in FOLDER.items() if not path.startswith("proxy")}, NOW + 2_000)
    assert "proxy-0-1" not in {node["name"] for node in cluster.content(NOW + 2_000)["nodes"]}
    cluster.heard("proxy/partition0/0000000001", NOW, "", [], [], {})  # an answer that comes after it has gone
    # A process that has begun anew has no negative rate.
    cluster.heard("broker/partition0/0000000003", NOW + 4_000, text(5, 5), [], [], {})
    (broker,) = [node for node in cluster.content(NOW + 4_000)["nodes"] if node["role"] == "broker"]
    assert broker["rates"]["messages_in"] == 0.0


def test_who_was_there_is_shown_as_gone_unless_it_drained_or_was_replaced() -> None:
    cluster = filled()
    without = {path: each for path, each in FOLDER.items() if not path.startswith("proxy")}
    cluster.listed(without, NOW + 4_000)
    (gone,) = cluster.content(NOW + 5_000)["gone"]
    assert (gone["name"], gone["role"], gone["partition"], gone["since"]) == ("proxy-0-1", "proxy", 0, NOW + 4_000)
    cluster.listed(without, NOW + 3_999 + GONE_MS)
    assert cluster.content(NOW)["gone"]
    cluster.listed(without, NOW + 4_000 + GONE_MS)
    assert not cluster.content(NOW)["gone"], "it is forgotten"

    cluster = filled()
    cluster.listed(without, NOW)
    cluster.listed(FOLDER, NOW + 1)
    assert not cluster.content(NOW)["gone"], "it is back"
    anew = without | {"proxy/partition0/0000000002": entry("proxy-0-2", "proxy")}
    cluster.listed(anew | FOLDER, NOW + 2)
    cluster.listed(anew, NOW + 3)
    assert not cluster.content(NOW)["gone"], "another began before the registry forgot it"
    cluster.listed(without, NOW + 3 + REPLACED_MS)
    assert [node["name"] for node in cluster.content(NOW)["gone"]] == ["proxy-0-2"]
    cluster.listed(without | {"proxy/partition0/0000000003": entry("proxy-0-3", "proxy")}, NOW + 4 + REPLACED_MS)
    assert not cluster.content(NOW)["gone"], "another begins after it"

    draining = FOLDER | {"proxy/partition0/0000000001": entry("proxy-0-1", "proxy", state="Draining")}
    cluster = ClusterMap()
    cluster.listed(draining, NOW)
    cluster.listed(without, NOW + 1)
    assert not cluster.content(NOW)["gone"]


def names_of(content: dict[str, Any], part: str) -> list[str]:
    return sorted(node["name"] for node in content[part])


@pytest.mark.feature("X31")
def test_a_killed_process_is_missing_until_its_replacement_is_listed_and_is_shown_once() -> None:
    cluster = filled()
    old, new = "broker/partition0/0000000003", "broker/partition0/0000000004"
    cluster.listed(FOLDER, NOW + 4_000)  # the registry lists it until its session ends
    cluster.unheard(old, NOW + 4_000, is_refused=True)
    content = cluster.content(NOW + 4_000)
    assert names_of(content, "gone") == ["broker-0-3"] and "broker-0-3" not in names_of(content, "nodes")
    assert content["gone"][0]["since"] == NOW + 4_000
    assert cluster.snapshot(NOW + 4_000)["pixiu_cluster_silent"]["broker",] == 1  # type: ignore[index]

    both = FOLDER | {new: entry("broker-0-3", "broker", admin="127.0.0.1:94", state="Init")}
    asked = cluster.listed(both, NOW + 6_000)
    assert old not in asked and asked[new] == "127.0.0.1:94"
    content = cluster.content(NOW + 6_000)
    assert names_of(content, "nodes").count("broker-0-3") == 1 and not content["gone"]
    cluster.heard(new, NOW + 6_000, text(1, 1), [], [], {})
    after = {path: each for path, each in both.items() if path != old}
    cluster.listed(after, NOW + 8_000)
    content = cluster.content(NOW + 8_000)
    assert names_of(content, "nodes").count("broker-0-3") == 1 and not content["gone"]


def test_a_killed_process_without_a_replacement_stays_missing_after_the_registry_dropped_it() -> None:
    cluster = filled()
    path = "broker/partition0/0000000003"
    cluster.unheard(path, NOW + 4_000, is_refused=True)
    cluster.listed(FOLDER, NOW + 5_000)
    assert names_of(cluster.content(NOW + 5_000), "gone") == ["broker-0-3"]
    cluster.listed({each: row for each, row in FOLDER.items() if each != path}, NOW + 14_000)
    (gone,) = cluster.content(NOW + 14_000)["gone"]
    assert (gone["name"], gone["since"]) == ("broker-0-3", NOW + 4_000)


def test_a_process_that_answers_again_is_not_missing() -> None:
    cluster = filled()
    path = "broker/partition0/0000000003"
    cluster.unheard(path, NOW + 4_000, is_refused=True)
    cluster.heard(path, NOW + 6_000, text(1, 1), [], [], {})
    content = cluster.content(NOW + 6_000)
    assert not content["gone"] and "broker-0-3" in names_of(content, "nodes")


def test_a_process_that_does_not_answer_in_time_twice_is_listed_as_silent() -> None:
    cluster = filled()
    path = "broker/partition0/0000000003"

    def answers() -> bool:
        (broker,) = [node for node in cluster.content(NOW + 4_000)["nodes"] if node["name"] == "broker-0-3"]
        return bool(broker["answers"])

    cluster.unheard(path, NOW + 4_000, is_refused=False)
    assert answers(), "one late answer of a busy machine"
    cluster.unheard(path, NOW + 6_000, is_refused=False)
    assert not answers()
    cluster.heard(path, NOW + 4_000, text(1, 1), [], [], {})
    assert answers()


def test_who_begins_anew_under_its_own_name_stands_in_for_nobody_else() -> None:
    cluster = filled()
    both = FOLDER | {"proxy/partition0/0000000002": entry("proxy-0-2", "proxy")}
    anew = {path: each for path, each in both.items() if path != "proxy/partition0/0000000001"}
    anew |= {"proxy/partition0/0000000003": entry("proxy-0-1", "proxy")}
    cluster.listed(both, NOW)
    cluster.listed(both | anew, NOW + REPLACED_MS)
    cluster.listed(anew, NOW + REPLACED_MS + 1)
    assert not cluster.content(NOW)["gone"]
    cluster.listed({path: each for path, each in anew.items() if path[-1] != "2"}, NOW + REPLACED_MS + 2)
    assert [node["name"] for node in cluster.content(NOW)["gone"]] == ["proxy-0-2"]


def test_a_probe_is_called_by_its_own_name() -> None:
    cluster = filled()
    peer = {**PEER, "name": "gateway-0-9", "role": "gateway"}
    cluster.heard("broker/partition0/0000000003", NOW + 2_000, "", [peer], [], {})
    links = {(link["from"], link["to"], link["role"]) for link in cluster.content(NOW + 2_000)["links"]}
    assert ("broker-0-3", "probe-0-1", "probe") in links


def test_an_exposition_is_read() -> None:
    found = samples_of('a{b="c",d="e"} 1.5\na{b="x"} 2\n# a 9\nz 1e3\nbad line here\nn NaN\n')
    assert found['a{b="c",d="e"}'] == 1.5
    assert found["a"] == 3.5
    assert found["z"] == 1000.0
