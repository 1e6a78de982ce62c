"""The pictures of the README, taken from a running node: ``python -m tools.make_screenshots``.

A node is started on a new directory, a few people talk, and the console is looked at with Debian's chromium. Chinese
and emoji need fonts that have them (on Debian: fonts-wqy-microhei, fonts-noto-color-emoji).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.world import BrowserWorld, open_world

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


NAMES = {"alice": "Alice Novak", "mei": "林美", "tomas": "Tomás Rivera", "jun": "Jun Tanaka", "priya": "Priya Shah"}


def live_a_little(world: BrowserWorld) -> None:
    """What the pictures show."""
    for user, name in NAMES.items():
        world.act(user, "create_user", user=user, name=name)
    for other in ("mei", "tomas", "jun", "priya"):
        world.act("alice", "contact", user=other)
        world.act(other, "contact", user="alice")
    for one, other in (("mei", "tomas"), ("mei", "jun")):
        world.act(one, "contact", user=other)
    world.act("tomas", "send", to="alice", text="Lunch at the noodle place?")
    world.act("priya", "send", to="alice", text="The new dashboards are lovely, thank you!")
    made = world.act("tomas", "create_group", name="Launch day 🚀", members=["alice", "mei", "jun"])
    said = [(user, world.act(user, "send", to=other, text=text)["message_id"]) for user, other, text in TALK]
    world.act("mei", "send", to="alice", text="Coffee it is ☕️", ref=said[-1][1])
    world.act("mei", "receipt", message_ids=[each for user, each in said if user == "alice"], kind="both")
    for user, text in GROUP:
        world.act(user, "gsend", group=made["group"], text=text)
    for place in ({"with": "tomas"}, {"with": "priya"}, {"with": "mei"}, {"group": made["group"]}):
        world.act("alice", "read", **place)
    for place in ({"with": "alice"}, {"group": made["group"]}):
        world.act("mei", "read", **place)
    for text in ("Slides for Friday are in the usual place.", "Could you look at page 4?"):
        world.act("jun", "send", to="alice", text=text)


def window(world: BrowserWorld, user: str, *, width: int, height: int, is_dark: bool = False) -> Page:
    """A window of that user, on the chat."""
    page = world.log_in(
        user,
        viewport={"width": width, "height": height},
        color_scheme="dark" if is_dark else "light",
        device_scale_factor=1 if width > 600 else 2,
        timezone_id="Europe/Prague",
    )
    page.wait_for_selector(".list nav a .line:not(:empty)")
    return page


def settle(page: Page, milliseconds: int = 2500) -> None:
    """Let counts, dots and receipts arrive, and the motion end."""
    page.wait_for_timeout(milliseconds)


def take(world: BrowserWorld, folder: Path) -> None:
    """All pictures."""
    mei = window(world, "mei", width=1280, height=800)
    mei.click("[data-key='u:alice']")
    light = window(world, "alice", width=1280, height=800)
    light.click("[data-key='u:mei']")
    settle(light)
    mei.locator("textarea").press_sequentially("在路上")
    light.wait_for_selector(".status.typing")
    light.screenshot(path=folder / "chat-light.png")
    light.context.close()

    dark = window(world, "alice", width=1280, height=800, is_dark=True)
    dark.click("[data-key^='g:']")
    settle(dark)
    dark.screenshot(path=folder / "chat-dark.png")
    dark.goto(f"{world.url}/#/live")
    mei.evaluate("pixiu.enter({ room: 'standup' }).then(() => null)")
    for turn in range(40):  # something to look at
        for n in range(3 + turn % 7 * 2):
            world.act(("tomas", "jun", "priya")[n % 3], "send", to="mei", text=f"{turn} {n}")
            mei.evaluate("pixiu.say({ room: 'standup', text: 'and next' }).then(() => null)")
        settle(dark, 250)
    dark.screenshot(path=folder / "console-live.png")
    dark.context.close()

    phone = window(world, "alice", width=390, height=844)
    settle(phone)
    phone.screenshot(path=folder / "phone-list.png")
    phone.click("[data-key='u:mei']")
    settle(phone)
    phone.screenshot(path=folder / "phone-chat.png")


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--to", type=Path, default=IMAGES, help="where to put them")
    folder: Path = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as data, open_world(Path(data), "--dev") as world:
        live_a_little(world)
        take(world, folder)
        world.close_windows()
    sizes = ", ".join(f"{path.name} {path.stat().st_size // 1024} KB" for path in sorted(folder.glob("*.png")))
    sys.stdout.write(f"{sizes} in {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
