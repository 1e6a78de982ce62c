"""A folder of pages over HTTP: what is there, under a policy made for it, and nothing beside it.

::

    pages = console_pages(is_dev=False)
    HttpApi(…, pages=pages)

Only files that were there at the start are served; a path is looked up among them and never given to the file system.
A browser asks every time and is told that nothing has changed (ETag), so a new release is seen at once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pixiu.model.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

__all__ = ["FileVersion", "Pages", "console_pages"]

STATIC = Path(__file__).parent / "static"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""A file of another kind is not served."""

_INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One file as it was read."""

    stamp: tuple[int, int]
    """When it was changed, and its size."""
    body: bytes
    content_type: str
    etag: str


class Pages:
    """An ASGI application. A file that changes on disk is read again."""

    def __init__(self, folder: Path, *, made: Mapping[str, object] | None = None) -> None:
        """``made`` are small JSON documents that come with the files, by their path."""
        self._folder = folder
        self._made = {path: msgspec.json.encode(content) for path, content in (made or {}).items()}
        self._files: dict[str, FileVersion] = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in TYPES:
                self._files[f"/{path.relative_to(folder).as_posix()}"] = _read(path)
        self.policy = policy_for(self._files["/index.html"].body)
        """Content-Security-Policy of all of them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. A path that is not there raises, for the application around it to answer."""
        path = "/index.html" if scope["path"] == "/" else scope["path"]
        made = self._made.get(path)
        if made is None and path not in self._files:
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        if made is not None:
            answer = Response(made, media_type="application/json", headers={"Cache-Control": "no-store"})
        else:
            answer = self._file(path, scope)
        await answer(scope, receive, send)

    def _file(self, path: str, scope: Scope) -> Response:
        file = self._fresh(path)
        headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Content-Type": file.content_type}
        known = next((value for name, value in scope["headers"] if name == b"if-none-match"), b"")
        if file.etag.encode() in known:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers)

    def _fresh(self, path: str) -> FileVersion:
        """What the file holds now; what it held, if it is being replaced."""
        found = self._files[path]
        try:
            if _stamp(self._folder / path[1:]) != found.stamp:
                found = self._files[path] = _read(self._folder / path[1:])
                if path == "/index.html":
                    self.policy = policy_for(found.body)
        except OSError:
            pass
        return found


def console_pages(*, is_dev: bool, node: str = "", is_cluster: bool = False) -> Pages:
    """The console. ``is_dev``: a name is enough to log in. ``node`` tells apart what browsers keep of several nodes.

    ``is_cluster``: a gateway of a cluster, which has no numbers, log or pipeline of its own.
    """
    facts = {"dev": is_dev, "version": __version__, "node": node, "cluster": is_cluster}
    return Pages(STATIC, made={"/console.json": facts})


def policy_for(index: bytes) -> str:
    """Scripts, styles and connections of this server only; of inline scripts those that are in the page itself.

    Images may come from anywhere: a message of kind image names its address. The chat loads such an image only when the
    reader asks for it (chat/media.js). Browsers count a WebSocket to the page's own host and port as 'self'.
    """
    hashes = [f"'sha256-{b64encode(sha256(each).digest()).decode()}'" for each in _INLINE_SCRIPT.findall(index)]
    scripts = " ".join(["'self'", *hashes])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self'; img-src 'self' data: http: https:; "
        "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _read(path: Path) -> FileVersion:
    body = path.read_bytes()
    digest = sha256(body).hexdigest()[:32]
    return FileVersion(_stamp(path), body, TYPES[path.suffix], f'"{digest}"')


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
