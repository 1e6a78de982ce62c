"""Frames in streams of bytes: WebSocket headers, length prefixes, and the head that asks for a WebSocket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.session import LENGTH_PREFIXED, WEBSOCKET_BINARY, WEBSOCKET_TEXT, FrameTooLarge, LengthPrefixed
from pixiu.machines.session.upgrade import HEAD_BYTES_MAX, HTTP, MORE, BadUpgrade, Upgrade, allows_origin, read_upgrade

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def head(target: str = "/ws?token=t", **headers: str) -> bytes:
    """A browser's upgrade request; headers replace those that it has."""
    found = {
        "Host": "chat.example:8400",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
    }
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in found.items() if value != "-")]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class TestEnvelopes:
    @pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
    def test_a_websocket_header_says_the_length(self, size: int) -> None:
        for envelope, first in ((WEBSOCKET_TEXT, 0x81), (WEBSOCKET_BINARY, 0x82)):
            frame = envelope.wrap(b"x" * size)
            assert frame[0] == first and not frame[1] & 0x80, "a server does not mask"
            if size < 126:
                assert frame[1:2] == bytes([size]) and len(frame) == size + 2
            elif size < 65_536:
                assert frame[1] == 126 and int.from_bytes(frame[2:4]) == size and len(frame) == size + 4
            else:
                assert frame[1] == 127 and int.from_bytes(frame[2:10]) == size and len(frame) == size + 10

    @given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 17), min_size=1))
    def test_length_prefixed_frames_survive_any_cut(self, payloads: list[bytes], cuts: list[int]) -> None:
        data = b"".join(map(LENGTH_PREFIXED.wrap, payloads))
        frames = LengthPrefixed(100)
        found: list[bytes] = []
        index = 0
        while data:
            size = cuts[index % len(cuts)]
            index += 1
            found += frames.feed(data[:size])
            data = data[size:]
        assert found == payloads and frames.buffered == 0

    @given(st.binary(max_size=300))
    def test_any_bytes_give_frames_or_a_typed_error(self, data: bytes) -> None:
        frames = LengthPrefixed(50)
        try:
            assert all(len(frame) <= 50 for frame in frames.feed(data))
        except FrameTooLarge as error:
            assert error.code == "too_large"
        else:
            assert frames.buffered < 54

    def test_a_frame_that_is_too_large_is_refused_before_it_arrives(self) -> None:
        with pytest.raises(FrameTooLarge, match="may have 100 bytes, not 101"):
            LengthPrefixed(100).feed((101).to_bytes(4))


class TestUpgrade:
    def test_a_browsers_request(self) -> None:
        data = head("/ws?cursor=42&token=a%2Bb", Sec_WebSocket_Protocol="other, pixiu.proto.v1, pixiu.json.v1")
        found = read_upgrade(data + b"rest")
        assert found == Upgrade(
            "/ws", "a+b", 42, KEY, "pixiu.proto.v1", "proto", "", "chat.example:8400", len(data)
        )  # fmt: skip

    def test_the_token_may_come_in_a_header(self) -> None:
        found = read_upgrade(head("/ws", Authorization="bearer  abc"))
        assert isinstance(found, Upgrade) and (found.token, found.codec, found.subprotocol) == ("abc", "json", "")
        nothing = read_upgrade(head("/ws", Authorization="Basic abc"))
        assert isinstance(nothing, Upgrade) and nothing.token == ""

    def test_it_waits_for_the_whole_head_and_no_longer(self) -> None:
        data = head()
        for end in range(len(data)):
            assert read_upgrade(data[:end]) is MORE
        assert isinstance(read_upgrade(data), Upgrade)
        assert read_upgrade(b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX) is HTTP

    @pytest.mark.parametrize(
        "data",
        [
            b"POST /v1/actions/send HTTP/1.1\r\n",
            b"P",
            b"\x16\x03\x01",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            b"HEAD /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        ],
    )
    def test_everything_else_is_for_the_http_server(self, data: bytes) -> None:
        assert read_upgrade(data) is HTTP

    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (head(Sec_WebSocket_Version="8"), 426),
            (head(Sec_WebSocket_Key="-"), 400),
            (head(Sec_WebSocket_Key="short"), 400),
            (head(Sec_WebSocket_Key="é" * 24), 400),
            (head(Connection="close"), 400),
            (head("/ws?cursor=-1"), 400),
            (head("/ws?cursor=x"), 400),
            (head("/ws?token=%ff"), 400),
            (head("/ws?" + "&".join(f"a{number}=1" for number in range(100))), 400),
            (head("//[bad/ws"), 400),
            (head("/ws x"), 400),
            (head(Sec_WebSocket_Protocol="graphql-ws"), 400),
            (head().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
            (head().replace(b"Host: ", b"Host "), 400),
        ],
    )
    def test_an_upgrade_that_cannot_be(self, data: bytes, status: int) -> None:
        with pytest.raises(BadUpgrade) as caught:
            read_upgrade(data)
        assert caught.value.status == status

    @given(st.binary(max_size=200), st.integers(0, 300))
    def test_no_head_raises_anything_else(self, noise: bytes, at: int) -> None:
        whole = head(Origin="http://x")
        for data in (noise, b"GET " + noise, whole[:at] + noise + whole[at:]):
            try:
                found = read_upgrade(data)
            except BadUpgrade:
                continue
            assert found in (HTTP, MORE) or isinstance(found, Upgrade)

    def test_origins(self) -> None:
        def allows(origin: str, origins: str) -> bool:
            found = read_upgrade(head(Origin=origin))
            assert isinstance(found, Upgrade)
            return allows_origin(found, origins)

        assert allows("-", ""), "a program has no origin"
        assert allows("http://chat.example:8400", "") and allows("https://CHAT.example:8400", "")
        assert not allows("http://chat.example", "") and not allows("http://evil.example", "")
        assert not allows("null", "") and allows("null", "*")
        assert allows("https://app.example", "https://a.example, https://app.example")
        assert not allows("https://app.example.evil", "https://app.example")
