"""Faults put into a node's stores: all of them are found, and nothing else."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pixiu.backends.embedded import bulk
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.layout import BODY, PRIVATE, REFERENCES, key1, range_of
from pixiu.model.errors import Conflict
from pixiu.model.timeline import GroupRow
from pixiu.node.stores import cut_stopped, rebuild_stores
from pixiu.pipeline.orphans import compare_stores
from pixiu.runtime.datadir import DataDirectory
from tests.pipeline.test_rebuild import talk


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose stores have all of its log."""
    root = tmp_path_factory.mktemp("orphans") / "data"
    asyncio.run(talk(root, random.Random(5), 120))
    with DataDirectory.open(root):
        cut_stopped(root)  # brings them to the end of the log
    return root


@pytest.mark.feature("R20")
def test_injected_faults_are_found_all_of_them_and_nothing_else(talked: Path, tmp_path: Path) -> None:
    shutil.copytree(talked, tmp_path / "data")
    with DataDirectory.open(tmp_path / "data"):
        rebuild_stores(tmp_path / "data")
    expected, actual = tmp_path / "data" / "stores", tmp_path / "spoilt"
    shutil.copytree(talked / "stores", actual)
    assert compare_stores(expected, actual) == []  # however many commits they came by
    store = RocksKeyValue(actual, options=LARGE)
    bodies = list(bulk.stored_bodies(store))
    lost, counted = bodies[3], bodies[7]
    orphan = bulk.body_row(5, 2, b"nobody's")
    wrong = bulk.body_row(counted[0], counted[1] + 3, counted[2])
    counters = list(bulk.stored_unread(store))
    user, kind, owner, count = counters[-1]
    group = next(iter(bulk.stored_group_rows(store)))
    recalled = bulk.group_row(group[0], GroupRow(group[1], group[2], group[3], 5 - group[4]))
    private_key, private_value = next(iter(store.scan(*range_of(PRIVATE))))
    store.write(
        [orphan, wrong, bulk.unread_row(user, kind, owner, count + 1, 1), recalled],
        [key1(BODY, lost[0]), key1(REFERENCES, counted[0] >> 22), private_key],
    )
    store.close()
    found = compare_stores(expected, actual)
    by_kind = sorted((each.finding, each.table, each.key) for each in found)
    spoilt_owner = int.from_bytes(private_key[1:9], "big")
    rows = len(private_value) // 17
    shared = [  # the counts of one millisecond are one row: its others are back at their first counts
        each for each in by_kind if each[:2] == ("wrong count", "bodies") and int(each[2]) >> 22 == counted[0] >> 22
    ]
    assert ("body without ids", "bodies", "5") in by_kind
    assert ("id without body", "bodies", str(lost[0])) in by_kind
    assert ("wrong count", "bodies", str(counted[0])) in shared
    assert ("wrong count", "unread", f"{user} {1 if kind == 'u' else 2} {owner}") in by_kind
    assert ("wrong row", "group timelines", f"{group[0]} {group[1]}") in by_kind
    missing = [each for each in by_kind if each[0] == "missing row"]
    assert len(missing) == rows and all(each[2].startswith(f"{spoilt_owner} ") for each in missing)
    assert len(by_kind) == 4 + len(shared) + rows


def test_stores_at_different_events_are_not_compared(talked: Path, tmp_path: Path) -> None:
    empty = RocksKeyValue(tmp_path / "empty", options=LARGE)
    empty.close()
    with pytest.raises(Conflict, match="bring both to the end of the log"):
        compare_stores(tmp_path / "empty", talked / "stores")
