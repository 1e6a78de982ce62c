"""The pictures of the README, taken from a running node: ``python -m tools.make_screenshots``.

A node is started on a new directory, a few people talk, and the console is looked at with Debian's chromium. Chinese
and emoji need fonts that have them (on Debian: fonts-wqy-microhei, fonts-noto-color-emoji).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import ARGUMENTS, CHROMIUM
from tests.servers import free_port, wait_for

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"

TALK = [
    ("mei", "alice", "Morning! Did the night run finish?"),
    ("alice", "mei", "It did: 41 million events, and the audit is balanced. Nothing lost, nothing doubled."),
    ("mei", "alice", "太好了！那我们今天就可以上线了。"),
    ("alice", "mei", "Let us wait for Tomás. He wants to pull the plug on one node first."),
    ("mei", "alice", "Literally?"),
    ("alice", "mei", "Literally. He bought a power strip with a big red switch for it."),
    ("mei", "alice", "哈哈，我要去看。几点？"),
    ("alice", "mei", "At 11, second floor. Bring coffee."),
]
GROUP = [
    ("tomas", "Red switch is mounted. Node 2 goes dark at 11:00."),
    ("alice", "I will keep 10,000 clients connected while you do it."),
    ("jun", "监控面板已经打开了，大家都能看到。"),
    ("tomas", "And … off."),
    ("alice", "Reconnected in 1.8 s. Every cursor resumed where it was."),
    ("mei", "审计结果：平衡。一条都没丢。"),
]


class People:
    """Users who act over HTTP, each with a token of their own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tokens: dict[str, str] = {}

    def act(self, user: str, action: str, /, **params: object) -> dict[str, Any]:
        """Do it as that user."""
        if user not in self._tokens:
            answer = httpx.post(f"{self._url}/v1/dev/token", json={"user": user, "platform": "script"})
            self._tokens[user] = answer.json()["token"]
        headers = {"Authorization": f"Bearer {self._tokens[user]}"}
        found = httpx.post(f"{self._url}/v1/actions/{action}", json=params, headers=headers)
        found.raise_for_status()
        return dict(found.json())

    def live_a_little(self) -> None:
        """What the pictures show."""
        names = {"alice": "Alice Novak", "mei": "林美", "tomas": "Tomás Rivera", "jun": "Jun Tanaka", "priya": "Priya Shah"}
        for user, name in names.items():
            self.act(user, "create_user", user=user, name=name)
        for other in ("mei", "tomas", "jun", "priya"):
            self.act("alice", "contact", user=other)
            self.act(other, "contact", user="alice")
        for one, other in (("mei", "tomas"), ("mei", "jun")):
            self.act(one, "contact", user=other)
        self.act("priya", "send", to="alice", text="The new dashboards are lovely, thank you!")
        self.act("alice", "read", **{"with": "priya"})
        made = self.act("tomas", "create_group", name="Launch day 🚀", members=["alice", "mei", "jun"])
        ids = []
        for user, other, text in TALK:
            ids.append((user, self.act(user, "send", to=other, text=text)["message_id"]))
        first = self.act("mei", "send", to="alice", text="Coffee it is ☕", ref=ids[-1][1])
        self.act("mei", "receipt", message_ids=[each for user, each in ids if user == "alice"], kind="both")
        self.act("alice", "read", **{"with": "mei"})
        for user, text in GROUP:
            self.act(user, "gsend", group=made["group"], text=text)
        self.act("alice", "read", group=made["group"])
        for text in ("Slides for Friday are in the usual place.", "Could you look at page 4?"):
            self.act("jun", "send", to="alice", text=text)
        assert first["message_id"]


@contextmanager
def served(data: Path) -> Iterator[str]:
    """``pixiu serve --dev`` on a new directory."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--data", str(data), "--port", str(port)]
    process = subprocess.Popen([*command, "--queue-port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_for(is_ready, what="the node", timeout_s=20)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def log_in(browser: Browser, url: str, user: str, *, width: int, height: int, scheme: str = "light") -> Page:
    """A window of that user, on the chat."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1 if width > 600 else 2,
        timezone_id="Europe/Prague",
    )
    page = context.new_page()
    page.goto(url)
    page.fill("input[name=user]", user)
    page.keyboard.press("Enter")
    page.wait_for_selector(".list nav a .line:not(:empty)")
    return page


def settle(page: Page, milliseconds: int = 2500) -> None:
    """Let counts, dots and receipts arrive, and the motion end."""
    page.wait_for_timeout(milliseconds)


def take(browser: Browser, url: str, folder: Path) -> None:
    """All pictures."""
    mei = log_in(browser, url, "mei", width=1280, height=800)
    mei.click("[data-key='u:alice']")
    light = log_in(browser, url, "alice", width=1280, height=800)
    light.click("[data-key='u:mei']")
    settle(light)
    mei.locator("textarea").press_sequentially("在路上")
    light.wait_for_selector(".status.typing")
    light.screenshot(path=folder / "chat-light.png")
    light.context.close()

    dark = log_in(browser, url, "alice", width=1280, height=800, scheme="dark")
    dark.click("[data-key^='g:']")
    settle(dark)
    dark.screenshot(path=folder / "chat-dark.png")
    dark.goto(f"{url}/#/live")
    settle(dark, 6000)
    dark.screenshot(path=folder / "console-live.png")
    dark.context.close()

    phone = log_in(browser, url, "alice", width=390, height=844)
    settle(phone)
    phone.screenshot(path=folder / "phone-list.png")
    phone.click("[data-key='u:mei']")
    settle(phone)
    phone.screenshot(path=folder / "phone-chat.png")
    phone.context.close()


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--to", type=Path, default=IMAGES, help="where to put them")
    folder: Path = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as data, served(Path(data) / "data") as url, sync_playwright() as playwright:
        People(url).live_a_little()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        take(browser, url, folder)
        browser.close()
    sizes = ", ".join(f"{path.name} {path.stat().st_size // 1024} KB" for path in sorted(folder.glob("*.png")))
    sys.stdout.write(f"{sizes} in {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
