"""``pixiu role`` and ``pixiu serve``, started with settings that they would not heed: refused in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.cli.role import ROLES
from pixiu.config.cluster import NODE_ROLE, ROLE_NAMES
from pixiu.runtime.log_note import NOTE


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["role", "broker"], "name the cluster's registry: --registry zk://HOST:PORT/PATH, or engines.registry"),
        (["role", "broker", "--set", "registry=http://a"], "a registry is zk://HOST:PORT"),
        (
            ["role", "gateway", "--set", "store=redis://a", "--registry", "zk://127.0.0.1:1/x"],
            "only shards have a log and stores: leave engines.store out",
        ),
        (["role", "proxy", "--set", "log=kafka://a"], "only shards have a log and stores: leave engines.log out"),
        (["role", "proxy", "--replica", "1", "--registry", "zk://127.0.0.1:1/x"], "are for the role shard, not for"),
        (["role", "shard", "--shard", "1", "--registry", "zk://127.0.0.1:1/x"], "a cluster has one shard, number 0"),
        (
            ["role", "shard", "--set", "log=nats://a", "--data", "{}", "--registry", "zk://127.0.0.1:1/x"],
            "engines.log is 'embedded' or kafka://HOST:PORT",
        ),
        (
            ["role", "gateway", "--set", "gateway.processes=2", "--registry", "zk://127.0.0.1:1/x"],
            "leave gateway.processes=2 out, and start more gateways",
        ),
        (["role", "pi", "--registry", "zk://127.0.0.1:1/x"], "there is no role 'pi'; there are: shard, proxy"),
        (["serve", "--set", "registry=zk://127.0.0.1:1/x"], "pixiu serve is a node of its own"),
        (["serve", "--set", "store=mysql://a", "--data", "{}"], "store must be embedded, or redis://HOST:PORT"),
        (["serve", "--set", "timelines=mysql://a", "--data", "{}"], "timelines must be embedded or cassandra://"),
        (["serve", "--set", "log=nats://a", "--data", "{}"], "engines.log is 'embedded' or kafka://HOST:PORT"),
    ],
)
def test_what_would_not_be_heeded_is_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    ports = ["--port", "0", "--queue-port", "0", "--no-pipeline"] if words[0] == "serve" else []
    command = [sys.executable, "-m", "pixiu", *(word.format(tmp_path) for word in words), *ports]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_has_served_a_log_in_kafka_is_no_replica_of_a_journal(tmp_path: Path) -> None:
    """As when the line was taken out of the cluster's file."""
    note = {"log": "kafka://127.0.0.1:1?prefix=talk", "client": "", "cluster_id": "c", "topic_id": "t"}
    (tmp_path / NOTE).write_text(json.dumps(note))
    words = ["role", "shard", "--data", str(tmp_path), "--registry", "zk://127.0.0.1:1/x"]
    done = subprocess.run(
        [sys.executable, "-m", "pixiu", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "--set log=kafka://127.0.0.1:1?prefix=talk" in done.stderr and "Traceback" not in done.stderr


def test_a_cluster_file_may_ask_for_every_role_and_the_whole_node() -> None:
    assert set(ROLE_NAMES) == {*ROLES, NODE_ROLE}
