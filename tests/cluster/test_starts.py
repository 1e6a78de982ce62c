"""A cluster starts on a machine that is busy with connections of its own."""

import subprocess
from pathlib import Path

import pytest

from pixiu.runtime.zookeeper import what_zookeeper_needs
from tests import private_network

pytestmark = pytest.mark.serial


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("first", "last"), [(32_768, 33_767), (1_024, 65_535)])
def test_ten_starts_in_a_row_succeed_while_many_connections_are_opened(tmp_path: Path, first: int, last: int) -> None:
    """A range of 1,000 ephemeral ports, of which 700 are in use all the time; and a range of all ports."""
    if missing := what_zookeeper_needs():
        pytest.skip(missing)
    command = private_network.command(first, last, "-m", "tests.cluster.ten_starts", str(tmp_path), "10")
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    if done.returncode == private_network.NOT_ALLOWED:
        pytest.skip(done.stderr)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
