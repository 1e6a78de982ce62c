"""An OpenSearch-compatible server as a sink, by its bulk API.

A document's id is its message id, its version the event id of what made or removed it (``version_type: external``): a
batch that is sent again changes nothing, and an older word never comes over a newer one. How far the index is stands in
a document of its own, written when everything before it was answered.

Only ``text`` is what was said; ``terms`` is the same, cut as everywhere in Pixiu, so that it needs no plug-in there.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from pixiu.machines.search.terms import index_text
from pixiu.model.errors import ConfigError, NotAllowed, PixiuError, TooLarge, Unauthenticated, Unavailable
from pixiu.model.ids import snowflake_time_ms
from pixiu.pipeline.search.steps import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.pipeline.search.steps import Said, Step, Taken

__all__ = ["OpenSearchIndex"]

BATCH_ACTIONS = 1000
BATCH_BYTES = 5 * 2**20
TRIES_MAX = 6
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 30.0
TIMEOUT_SECONDS = 60.0
ANSWER_BYTES_MAX = 64 * 2**20

_STATE_ID = "pixiu-state"
_LATER = (429, 502, 503, 504)
_MAPPINGS = {
    "dynamic": False,
    "properties": {
        "message_id": {"type": "long"}, "event_id": {"type": "long"}, "at": {"type": "date", "format": "epoch_millis"},
        "sender": {"type": "long"}, "recipient": {"type": "long"}, "group": {"type": "long"},
        "text": {"type": "text", "index": False}, "terms": {"type": "text", "analyzer": "whitespace"},
    },
}  # fmt: skip

Action = tuple[dict[str, Any], dict[str, Any] | None]
"""A line that says what to do, and the document if there is one."""


class OpenSearchIndex:
    """One index of a server. What it answers is never believed unread: every item of a batch is looked at."""

    name = "search"

    def __init__(
        self, url: str, index: str = "pixiu-messages", *, pause: Callable[[float], object] = time.sleep
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url must begin with http:// or https:// and name a host, not {url!r}")
        self._host, self._port, self._is_tls = parts.hostname, parts.port, parts.scheme == "https"
        self.shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        """Without what it may hold of a password."""
        self._path = f"{parts.path.rstrip('/')}/{quote(index, safe='')}"
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self._pause = pause
        self._connection: http.client.HTTPConnection | None = None
        try:
            self._state = self._open()
        except BaseException:
            self.close()
            raise

    def state(self) -> State:
        """How far it is."""
        return self._state

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def apply(self, step: Step) -> int:
        """Documents, recalls, erasures, and then how far it is."""
        count = 0
        for batch in _batches(_indexed(said) for said in step.said):
            count += sum(1 for line, _ in batch if "index" in line)
            self._bulk(batch)
        for batch in _batches(_deleted(taken) for taken in step.taken):
            self._bulk(batch)
        for erased in step.erased:
            through = {"range": {"event_id": {"lte": erased.through}}}
            self._delete_where([{"term": {"sender": erased.user}}, through])
        if step.state.kept_from > self._state.kept_from:
            self._delete_where([{"range": {"message_id": {"lt": step.state.kept_from}}}])
        line = {"_id": _STATE_ID, "version": max(1, step.state.through), "version_type": "external_gte"}
        self._bulk([({"index": line}, {"pixiu_state": step.state._asdict()})])
        self._state = step.state
        return count

    # The server.

    def _open(self) -> State:
        """Create the index if it is new; read how far it is."""
        status, answer = self._ask("PUT", "", {"mappings": _MAPPINGS}, expected=(200, 400))
        kind = (
            answer.get("error", {}).get("type", "") if status == 400 and isinstance(answer.get("error"), dict) else ""
        )
        if status == 400 and "already_exists" not in kind:
            raise PixiuError(f"{self.shown} does not take the index: {_reason(answer)}")
        status, answer = self._ask("GET", f"/_doc/{_STATE_ID}", None, expected=(200, 404))
        if status == 404:
            return State()
        try:
            return State(**answer["_source"]["pixiu_state"])
        except (LookupError, TypeError) as error:
            raise PixiuError(
                f"the index at {self.shown} does not say how far it is; give --index another name"
            ) from error

    def _delete_where(self, filters: list[dict[str, Any]]) -> None:
        self._ask("POST", "/_refresh", None)
        query = {"query": {"bool": {"filter": filters}}}
        _, answer = self._ask("POST", "/_delete_by_query?conflicts=proceed", query)
        if answer.get("failures"):
            raise Unavailable(f"{self.shown} could not remove all that was erased: {str(answer['failures'][0])[:200]}")

    def _bulk(self, batch: list[Action]) -> None:
        """One batch; items that are refused for now are sent again, in their order, a bounded number of times."""
        for attempt in range(TRIES_MAX):
            status, answer = self._send_batch(batch)
            if status == 413:
                self._halves(batch)
                return
            items = answer.get("items")
            if not isinstance(items, list) or len(items) != len(batch):
                raise PixiuError(f"{self.shown} does not answer as the bulk API does: {str(answer)[:200]}")
            batch = [action for action, item in zip(batch, items, strict=True) if self._is_to_repeat(item)]
            if not batch:
                return
            self._wait(attempt)
        raise Unavailable(f"{self.shown} refused {len(batch)} documents {TRIES_MAX} times; try again later")

    def _send_batch(self, batch: list[Action]) -> tuple[int, dict[str, Any]]:
        lines = [line for action in batch for line in action if line is not None]
        body = b"".join(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for line in lines)
        return self._ask("POST", "/_bulk", body, expected=(200, 413))

    def _halves(self, batch: list[Action]) -> None:
        if len(batch) == 1:
            raise TooLarge(f"{self.shown} takes no document as large as {next(iter(batch[0][0].values()))['_id']}")
        self._bulk(batch[: len(batch) // 2])
        self._bulk(batch[len(batch) // 2 :])

    def _is_to_repeat(self, item: Any) -> bool:
        """A newer version that is there already, and nothing to delete, are as good as done."""
        try:
            ((what, result),) = item.items()
            status = int(result["status"])
        except (AttributeError, ValueError, LookupError, TypeError) as error:
            raise PixiuError(f"{self.shown} does not answer as the bulk API does: {str(item)[:200]}") from error
        if status in (200, 201, 409) or (what == "delete" and status == 404):
            return False
        if status in _LATER:
            return True
        raise PixiuError(f"{self.shown} refuses document {result.get('_id')}: {_reason(result)}")

    def _ask(
        self, method: str, path: str, content: bytes | dict[str, Any] | None, expected: tuple[int, ...] = (200,)
    ) -> tuple[int, dict[str, Any]]:
        """One request, again where the server is not ready, a bounded number of times."""
        reason = ""
        for attempt in range(TRIES_MAX):
            try:
                status, data = self._exchange(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, data, reason = 0, b"", str(error) or type(error).__name__
            if status in expected:
                return status, self._decoded(data) if status != 413 else {}
            if status in (401, 403):
                kind = Unauthenticated if status == 401 else NotAllowed
                raise kind(
                    f"{self.shown} answers {status}: give a user in --url (https://user:password@…) who may write"
                )
            if status and status not in _LATER:
                raise PixiuError(f"{self.shown} answers {status} to {method} {self._path}{path}: {data[:200]!r}")
            reason = f"status {status}" if status else reason
            self._wait(attempt)
        raise Unavailable(
            f"{self.shown} did not answer {TRIES_MAX} times ({reason}); what was indexed stays, run it again"
        )

    def _exchange(self, method: str, path: str, content: bytes | dict[str, Any] | None) -> tuple[int, bytes]:
        if self._connection is None:
            if self._is_tls:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT_SECONDS, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        body: bytes | None = None
        kind: dict[str, str] = {}
        if isinstance(content, bytes):
            body, kind = content, {"Content-Type": "application/x-ndjson"}
        elif content is not None:
            body, kind = json.dumps(content).encode(), {"Content-Type": "application/json"}
        self._connection.request(method, f"{self._path}{path}", body=body, headers={**self._headers, **kind})
        answer = self._connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data or b"{}")
        except ValueError as error:
            raise PixiuError(f"{self.shown} does not answer in JSON: {data[:100]!r}") from error
        return found if isinstance(found, dict) else {"answer": found}

    def _wait(self, attempt: int) -> None:
        if attempt + 1 < TRIES_MAX:
            self._pause(min(RETRY_SECONDS * 2**attempt, RETRY_SECONDS_MAX))


def _indexed(said: Said) -> Action:
    line = {"_id": str(said.message_id), "version": said.event_id, "version_type": "external"}
    document = {
        "message_id": said.message_id, "event_id": said.event_id, "at": snowflake_time_ms(said.message_id),
        "sender": said.sender, "recipient": said.recipient, "group": said.group, "text": said.text,
        "terms": index_text(said.text),
    }  # fmt: skip
    return {"index": line}, document


def _deleted(taken: Taken) -> Action:
    return {"delete": {"_id": str(taken.message_id), "version": taken.event_id, "version_type": "external"}}, None


def _batches(actions: Iterator[Action]) -> Iterator[list[Action]]:
    batch: list[Action] = []
    size = 0
    for action in actions:
        # Terms are about twice as long as a text of characters, and are the larger part.
        weight = 200 + (len(action[1]["terms"]) * 4 + len(action[1]["text"]) * 3 if action[1] is not None else 0)
        if batch and (len(batch) >= BATCH_ACTIONS or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += weight
    if batch:
        yield batch


def _reason(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('reason')}"[:300]
    return str(error or answer)[:300]
