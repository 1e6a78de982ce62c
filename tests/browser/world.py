"""A real node and a real browser: windows in which people are logged in, and the complaints of the browser.

Everything that a page writes as an error, every exception and every breach of the content security policy fails the
test at its end.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.chromium import ARGUMENTS, CHROMIUM, require_chromium
from tests.servers import free_port, wait_for

__all__ = ["BrowserWorld", "open_world"]

WATCH_POLICY = """
addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective, event.blockedURI));
"""
expect.set_options(timeout=10_000)


class BrowserWorld:
    """One node, one browser."""

    def __init__(self, data: Path, browser: Browser, options: tuple[str, ...]) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.complaints: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        """Parts of complaints that a test expects."""
        self._browser = browser
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._contexts: list[BrowserContext] = []
        self._tokens: dict[str, str] = {}
        self._http = httpx.Client(base_url=self.url, timeout=20)

    # The node.

    def start(self) -> None:
        ports = ["--port", str(self.port), "--queue-port", "0"]
        command = [sys.executable, "-m", "pixiu", "serve", "--data", str(self.data), "--no-pipeline", *ports]
        command += self._options
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._is_ready, what="the node to be ready", timeout_s=30)

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/readyz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self, *, kill: bool = False) -> None:
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(20)

    def close(self) -> None:
        self._http.close()

    def act(self, user: str, action: str, /, **params: object) -> dict[str, Any]:
        """Somebody does something without a browser."""
        if user not in self._tokens:
            answer = self._http.post("/v1/dev/token", json={"user": user, "platform": "script"})
            self._tokens[user] = answer.json()["token"]
        headers = {"Authorization": f"Bearer {self._tokens[user]}"}
        found = self._http.post(f"/v1/actions/{action}", json=params, headers=headers)
        assert found.status_code == 200, found.text
        return dict(found.json())

    def another(self, data: Path, *options: str) -> "BrowserWorld":
        """A second node for the same browser, not started."""
        return BrowserWorld(data, self._browser, options)

    # The browser.

    def context(self, **options: Any) -> BrowserContext:
        """A browser profile of its own."""
        options.setdefault("viewport", {"width": 1280, "height": 800})
        context = self._browser.new_context(locale=options.pop("locale", "en-GB"), **options)
        context.add_init_script(WATCH_POLICY)
        self._contexts.append(context)
        return context

    def tab(self, context: BrowserContext) -> Page:
        """A window, watched for complaints."""
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def _heard(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)

    def log_in(self, user: str, context: BrowserContext | None = None, **options: Any) -> Page:
        """A window in which that user chats."""
        page = self.tab(context or self.context(**options))
        page.goto(self.url)
        page.fill("input[name=user]", user)
        page.keyboard.press("Enter")
        expect(page.locator(".list")).to_be_visible()
        page.wait_for_function("() => window.pixiu?.state.name === 'open'")
        return page

    def close_windows(self) -> None:
        """Forget the windows of a test, and say what the browser complained of."""
        for context in self._contexts:
            context.close()  # closing twice is fine
        self._contexts.clear()
        heard, self.complaints = self.complaints, []
        forgiven, self.forgiven = self.forgiven, ()
        wrong = [each for each in heard if not any(part in each for part in forgiven)]
        assert not wrong, "\n".join(wrong)


@contextmanager
def open_world(folder: Path, *options: str) -> Iterator[BrowserWorld]:
    """A node with these options, and a browser; both end with the block."""
    require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        world = BrowserWorld(folder / "data", browser, options)
        world.start()
        try:
            yield world
        finally:
            browser.close()
            world.stop()
            world.close()
