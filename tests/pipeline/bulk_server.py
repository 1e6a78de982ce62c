"""A small server on loopback that answers as OpenSearch documents it: indexes, bulk, versions, deletion by query."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["BulkServer"]


class BulkServer:
    """Documents by index and id, with external versions; deletions leave a tombstone with its version."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.mappings: dict[str, Any] | None = None
        self.requests: list[tuple[str, str, str]] = []
        self.refusals: list[int] = []
        """Statuses of the next requests; 200 is none."""
        self.busy_items = 0
        """So many items of the next batches are refused for now."""
        self.bytes_max = 10**9
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with outer.lock:
                    status, said = outer.handle(self.command, self.path, body, self.headers.get("Authorization") or "")
                data = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = answer  # noqa: N815 - as http.server has them

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, method: str, target: str, body: bytes, authorization: str) -> tuple[int, Any]:
        self.requests.append((method, target, authorization))
        status = self.refusals.pop(0) if self.refusals else 200
        if status != 200:
            return status, {"error": {"type": "refused", "reason": "as the test wants"}, "status": status}
        path = urlsplit(target).path.strip("/").split("/")
        if method == "PUT" and len(path) == 1:
            if self.mappings is not None:
                return 400, {"error": {"type": "resource_already_exists_exception", "reason": "there"}, "status": 400}
            self.mappings = json.loads(body)["mappings"]
            return 200, {"acknowledged": True}
        if method == "GET" and path[1] == "_doc":
            found = self.documents.get(path[2])
            return (200, {"found": True, "_source": found}) if found is not None else (404, {"found": False})
        if path[1] == "_bulk":
            return (413, b"too large") if len(body) > self.bytes_max else (200, self._bulk(body))
        if path[1] == "_refresh":
            return 200, {}
        if path[1] == "_delete_by_query":
            return 200, self._delete(json.loads(body)["query"]["bool"]["filter"])
        return 404, {"error": {"type": "no_such_thing", "reason": target}, "status": 404}

    def _bulk(self, body: bytes) -> dict[str, Any]:
        lines = [json.loads(line) for line in body.decode().splitlines()]
        assert body.endswith(b"\n"), "a bulk body ends with a newline"
        items = []
        while lines:
            ((what, meta),) = lines.pop(0).items()
            document = lines.pop(0) if what == "index" else None
            items.append({what: {"_id": meta["_id"], **self._one(what, meta, document)}})
        return {"took": 1, "errors": any(item[next(iter(item))]["status"] > 299 for item in items), "items": items}

    def _one(self, what: str, meta: dict[str, Any], document: dict[str, Any] | None) -> dict[str, Any]:
        if self.busy_items:
            self.busy_items -= 1
            return {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "busy"}}
        number, version, kind = meta["_id"], meta["version"], meta["version_type"]
        present = self.versions.get(number, 0)
        if version < present or (version == present and kind == "external"):
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "newer"}}
        self.versions[number] = version
        if what == "delete":
            return {"status": 200 if self.documents.pop(number, None) is not None else 404}
        if document is not None and document.get("text") == "poison":
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "will not have it"}}
        self.documents[number] = document or {}
        return {"status": 201}

    def _delete(self, filters: list[dict[str, Any]]) -> dict[str, Any]:
        gone = [key for key, each in self.documents.items() if all(_fits(each, wanted) for wanted in filters)]
        for key in gone:
            del self.documents[key]
        return {"deleted": len(gone), "failures": []}


def _fits(document: dict[str, Any], wanted: dict[str, Any]) -> bool:
    ((kind, fields),) = wanted.items()
    ((name, bound),) = fields.items()
    value = document.get(name)
    if value is None:
        return False
    if kind == "term":
        return bool(value == bound)
    return bool(value <= bound["lte"] if "lte" in bound else value < bound["lt"])
