"""The JavaScript SDK: the same promises in a browser, with IndexedDB, and in Node, with its own memory."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pixiu.console.pages import STATIC
from tests.browser.world import BrowserWorld, open_world
from tests.servers import free_port

HERE = Path(__file__).parent
CASES = (HERE / "sdk_cases.js").read_text(encoding="utf-8").rstrip().removesuffix(";")
IN_PAGE = """async () => {
  const sdk = await import('/pixiu.js');
  const storeOf = (name) => new sdk.IndexedStore(`test ${name}`);
  return (%s)({ sdk, url: location.origin, storeOf });
}"""


DOCUMENT = HERE.parents[1] / "docs" / "sdk-javascript.md"
OWN_PORT = free_port()
OWN_ORIGIN = f"http://127.0.0.1:{OWN_PORT}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    # A small inbox, so that a user who was away has missed something.
    options = (
        "inbox.offline_max=20", "messaging.page_bytes_max=8192",
        f"gateway.origins={OWN_ORIGIN}", f"security.cors_origins={OWN_ORIGIN}",
    )  # fmt: skip
    settings = [word for option in options for word in ("--set", option)]
    with open_world(tmp_path_factory.mktemp("sdk"), "--dev", *settings) as world:
        yield world


@contextmanager
def site(folder: Path, port: int, node: str) -> Iterator[str]:
    """A web server of one's own, with the example of the document as its page. Yields its origin."""
    tour = DOCUMENT.read_text(encoding="utf-8").partition("```js\n")[2].partition("```")[0]
    script = tour.replace("http://127.0.0.1:8400", node) + "\nwindow.hasSent = true;\n"
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(f'<link rel="icon" href="data:,"><script type="module">{script}</script>')
    shutil.copy(STATIC / "pixiu.js", folder)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_example_of_the_document_works_on_a_page_of_a_configured_origin(shared: BrowserWorld, tmp_path: Path) -> None:
    with site(tmp_path / "own", OWN_PORT, shared.url) as own, site(tmp_path / "other", 0, shared.url) as other:
        page = shared.tab(shared.context())
        page.goto(own)
        page.wait_for_function("() => window.hasSent")
        said = shared.act("bob", "history", **{"with": "alice"})["messages"]
        assert [message["text"] for message in said] == ["hello"]
        stranger = shared.tab(shared.context())
        with stranger.expect_event("pageerror"):
            stranger.goto(other)
        shared.forgiven = ("CORS", "Failed to fetch", "ERR_FAILED")
        shared.close_windows()


@pytest.mark.feature("P25", "P29", "R15", "R16", "R17", "R18", "B15", "B16", "B17", "B20")
def test_in_a_browser(shared: BrowserWorld) -> None:
    page = shared.tab(shared.context())
    page.goto(shared.url)
    answer = page.evaluate(IN_PAGE % CASES)
    assert answer["wrong"] == {}, "\n".join(answer["wrong"].values())
    assert answer["ran"] == 22
    # Connections that are refused, on purpose, are errors to the browser.
    shared.forgiven = ("WebSocket", "ERR_CONNECTION_REFUSED", "400", "connect-src")
    shared.close_windows()


@pytest.mark.feature("P25", "R15", "R16", "R18", "B15", "B16", "B17")
def test_in_node(shared: BrowserWorld) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    version = int(said[1:].partition(".")[0])
    if version < 20:
        pytest.skip(f"node {version} has no WebSocket")
    flags = ["--experimental-websocket", "--no-warnings"] if version < 22 else []
    command = [node, *flags, str(HERE / "run_sdk.mjs"), str(STATIC / "pixiu.js"), shared.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == {}, "\n".join(answer["wrong"].values())
    assert answer["ran"] == 22
