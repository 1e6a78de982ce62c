"""The JavaScript SDK: the same promises in a browser, with IndexedDB, and in Node, with its own memory."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.console.pages import STATIC
from tests.browser.world import BrowserWorld, open_world

HERE = Path(__file__).parent
CASES = (HERE / "sdk_cases.js").read_text(encoding="utf-8").rstrip().removesuffix(";")
IN_PAGE = """async () => {
  const sdk = await import('/pixiu.js');
  const storeOf = (name) => new sdk.IndexedStore(`test ${name}`);
  return (%s)({ sdk, url: location.origin, storeOf });
}"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    # A small inbox, so that who was away has missed something.
    with open_world(tmp_path_factory.mktemp("sdk"), "--dev", "--set", "inbox.offline_max=20") as world:
        yield world


@pytest.mark.feature("P25", "P29", "R15", "R16", "R17", "R18", "B15", "B16", "B17", "B20")
def test_in_a_browser(shared: BrowserWorld) -> None:
    page = shared.tab(shared.context())
    page.goto(shared.url)
    answer = page.evaluate(IN_PAGE % CASES)
    assert answer["wrong"] == {}, "\n".join(answer["wrong"].values())
    assert answer["ran"] == 19
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
    assert answer["ran"] == 19
