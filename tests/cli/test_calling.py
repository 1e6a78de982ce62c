"""How a command finds the server of a data directory."""

import pytest

from pixiu.cli.calling import announced_url


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
