"""How a command finds the server of a data directory."""

from pathlib import Path

import pytest

from pixiu.cli.calling import Caller, announced_url
from pixiu.model.errors import PixiuError
from tests.servers import QueueProcess


@pytest.mark.parametrize(
    "said, url",
    [
        ("127.0.0.1:8400", "http://127.0.0.1:8400"),
        ("0.0.0.0:8400", "http://127.0.0.1:8400"),
        ("https://0.0.0.0:8400", "https://127.0.0.1:8400"),
        ("https://[::]:1", "https://[::1]:1"),
        ("10.0.0.7:1", "http://10.0.0.7:1"),
    ],
)
def test_what_a_server_says_of_itself_becomes_what_can_be_asked(said: str, url: str) -> None:
    assert announced_url(said) == url


def test_what_another_server_answers_is_shown(tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "data") as queue, pytest.raises(PixiuError, match="400: This is the port of Pixiu"):
        Caller(f"http://{queue.address}", "token", None).get("/v1/admin/stats")
