"""One message as a subscriber gets it."""

from datetime import UTC, datetime

from pixiu.machines.queue_wire import Message

__all__ = ["Delivery"]


class Delivery:
    """A message with its place in the log. Headers and body are decoded when first asked for."""

    __slots__ = ("_message", "event_id", "raw", "time_ms", "topic")

    def __init__(self, topic: str, event_id: int, time_ms: int, raw: bytes) -> None:
        self.topic = topic
        self.event_id = event_id
        """Its number in the log; a later subscription resumes after it."""
        self.time_ms = time_ms
        """When the queue wrote it, in Unix milliseconds."""
        self.raw = raw
        """The message exactly as it was published."""
        self._message: Message | None = None

    def __repr__(self) -> str:
        return f"Delivery(topic={self.topic!r}, event_id={self.event_id}, body={self.body!r})"

    @property
    def message(self) -> Message:
        """Headers and body. Raises RemoteProtocolError if an old server let nonsense in."""
        if self._message is None:
            self._message = Message.decode(self.raw)
        return self._message

    @property
    def body(self) -> bytes:
        """The body."""
        return self.message.body

    @property
    def text(self) -> str:
        """The body as text; what is not UTF-8 shows as replacement characters."""
        return self.message.body.decode("utf-8", errors="replace")

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers by name, in order."""
        return {key.decode("utf-8", errors="replace"): value for key, value in self.message.headers}

    @property
    def message_id(self) -> int | None:
        """The number that ``append`` gave it, if it came by ``append``."""
        return self.message.message_id

    @property
    def key(self) -> bytes | None:
        """The key that it was appended with."""
        return self.message.key

    @property
    def time(self) -> datetime:
        """When the queue wrote it."""
        return datetime.fromtimestamp(self.time_ms / 1000, UTC)
