"""What is sent is small enough, and says no more than it may; dates and seconds of a Retry-After."""

import json
from typing import Any

import pytest

from pixiu.backends.phones.answers import apns_verdict, fcm_verdict, retry_after_ms
from pixiu.backends.phones.messages import PAYLOAD_BYTES_MAX, apns_payload, fcm_payload
from pixiu.model.body import text_of
from pixiu.model.pixiu_pb2 import AES, MsgChat
from pixiu.model.push_token import PushToken
from pixiu.ports.notifications import Notification

PHONE = PushToken(2, "ios", "phone", "apns", "t" * 500)


def said(text: str, sender: str = "anna") -> Notification:
    return Notification("bert", "ios", 2**61, "u:1", sender, text, 3, PHONE)


def payloads(notification: Notification) -> tuple[bytes, bytes]:
    return apns_payload(notification, "New message"), fcm_payload(notification, "New message", expire_ms=0)


@pytest.mark.parametrize("text", ["貔" * 4000, "a" * 5000, "\x00" * 3000, '"' * 4000, "🐉" * 2000, "\ud800" * 5000])
def test_a_long_text_is_cut_to_what_a_provider_takes(text: str) -> None:
    for content, spare in zip(payloads(said(text)), (0, 500), strict=True):
        assert PAYLOAD_BYTES_MAX - 100 < len(content) - spare <= PAYLOAD_BYTES_MAX
        shown: dict[str, Any] = json.loads(content)
        body = shown["aps"]["alert"]["body"] if "aps" in shown else shown["message"]["notification"]["body"]
        assert body.endswith("…")
        assert text.encode(errors="replace").decode().startswith(body[:-1])


def test_a_short_text_is_left_alone() -> None:
    for content in payloads(said("hi 貔貅 \n")):
        assert "hi 貔貅 \\n" in content.decode()


@pytest.mark.feature("T2")
def test_of_an_encrypted_message_nothing_is_shown() -> None:
    chat = MsgChat(data=b"ciphertext-or-not", encType=AES)
    for content in payloads(said(text_of(chat, 200))):
        assert b"ciphertext" not in content
        assert b"New message" in content


def test_an_answer_that_makes_no_sense_blames_nobody() -> None:
    odd = b'{"error": {"details": [5, {"fieldViolations": [1]}]}}'
    for body in (b"", b"null", b"[1]", b"\xff", b'{"reason": 5}', odd):
        for verdict in (apns_verdict(418, body), fcm_verdict(418, body)):
            assert verdict.refused is not None
            assert not verdict.refused.is_token_dead
    assert apns_verdict(410, b'{"timestamp": "x"}').refused is not None


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        (None, 0),
        ("", 0),
        ("7", 7_000),
        (" 7 ", 7_000),
        ("99999999999999999", 600_000),
        ("-5", 0),
        ("soon", 0),
        ("Thu, 09 Oct 2025 08:53:30 GMT", 10_000),
        ("Thu, 09 Oct 2025 08:53:10 GMT", 0),
        ("Thu, 09 Oct 2035 08:53:10 GMT", 600_000),
    ],
)
def test_how_long_to_wait(value: str | None, wait_ms: int) -> None:
    assert retry_after_ms(value, 1_760_000_000_000) == wait_ms
