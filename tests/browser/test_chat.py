"""The chat in a real browser: two windows, groups, receipts, recalls, rooms, scheduled messages, gaps."""

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.browser.world import BrowserWorld, open_world
from tests.servers import wait_for


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    # A small inbox, so that who was away for long has missed something.
    with open_world(tmp_path_factory.mktemp("chat"), "--dev", "--set", "inbox.offline_max=20") as world:
        yield world


@pytest.fixture
def world(shared: BrowserWorld) -> Iterator[BrowserWorld]:
    yield shared
    shared.close_windows()


def say(page: Page, text: str) -> None:
    page.get_by_label("Write a message").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".said:not(.pending) .bubble", has_text=text).last).to_be_visible()


def begin(page: Page, kind: str, field: str, value: str) -> None:
    """Start a conversation by the dialog."""
    page.get_by_role("button", name="New conversation").first.click()
    page.get_by_role("tab", name=kind).click()
    page.fill(f"input[name={field}]", value)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Write a message")).to_be_visible()


def open_row(page: Page, key: str) -> None:
    page.locator(f"[data-key='{key}']").click()
    expect(page.get_by_label("Write a message")).to_be_visible()


def unread_of(world: BrowserWorld, user: str) -> int:
    """As the server counts, with contacts and others."""
    lists = world.act(user, "contacts")
    return sum(each["unread"] for each in (*lists["contacts"], *lists["others"]))


@pytest.mark.feature("P29", "R17", "R18", "R22", "B06")
def test_two_windows_of_one_browser_are_two_people_who_talk(world: BrowserWorld) -> None:
    context = world.context()
    ann, ben = world.log_in("ann", context), world.log_in("ben", context)
    begin(ann, "Person", "person", "ben")
    say(ann, "hello, Ben")
    expect(ann.locator(".ticks.delivered")).to_be_visible()
    row = ben.locator("[data-key='u:ann']")
    expect(row.locator(".line")).to_have_text("hello, Ben")
    expect(row.locator(".count")).to_have_text("1")
    row.click()
    expect(ben.locator(".bubble", has_text="hello, Ben")).to_be_visible()
    expect(row.locator(".count")).to_have_count(0)
    expect(ann.locator(".ticks.read")).to_be_visible()
    ben.get_by_label("Write a message").press_sequentially("你好")
    expect(ann.locator(".status.typing")).to_be_visible()
    ben.keyboard.press("Enter")
    expect(ann.locator(".bubble", has_text="你好")).to_be_visible()
    expect(ann.locator(".head .status")).not_to_have_text("online")  # ben has not added ann
    begin(ben, "Person", "person", "ann")
    expect(ann.locator(".head .status")).to_have_text("online")
    ben.close()
    expect(ann.locator(".head .status")).to_have_text("offline")


@pytest.mark.feature("B07")
def test_a_reply_and_a_recall(world: BrowserWorld) -> None:
    cat, dan = world.log_in("cat"), world.log_in("dan")
    begin(cat, "Person", "person", "dan")
    say(cat, "secret: <img src=x onerror=alert(1)> & https://example.org/a.")
    open_row(dan, "u:cat")
    theirs = dan.locator(".said", has_text="secret")
    expect(theirs.locator(".words")).to_have_text("secret: <img src=x onerror=alert(1)> & https://example.org/a.")
    expect(theirs.locator(".words a")).to_have_attribute("href", "https://example.org/a")
    theirs.hover()
    theirs.get_by_role("button", name="Reply").click()
    say(dan, "really?")
    expect(cat.locator(".said", has_text="really?").locator(".quote")).to_contain_text("secret")
    mine = cat.locator(".said", has=cat.locator(".words", has_text="secret"))
    mine.hover()
    mine.get_by_role("button", name="Recall").click()
    asked = cat.get_by_role("dialog", name="Recall this message?")
    expect(asked).to_contain_text("secret")
    asked.get_by_role("button", name="Cancel").click()
    expect(asked).to_have_count(0)
    expect(mine.locator(".words")).to_be_visible()
    mine.locator(".bubble").press("Delete")
    asked.get_by_role("button", name="Recall").click()
    expect(cat.get_by_text("You recalled a message")).to_be_visible()
    expect(dan.locator(".messages")).to_contain_text("cat recalled a message")
    expect(dan.locator(".messages")).not_to_contain_text("secret")
    dan.reload()
    expect(dan.locator(".messages")).to_contain_text("cat recalled a message")
    expect(dan.locator(".messages")).not_to_contain_text("secret")


@pytest.mark.feature("R05", "R06")
def test_a_group_from_its_creation_to_its_end(world: BrowserWorld) -> None:
    eve, fay = world.log_in("eve"), world.log_in("fay")
    eve.get_by_role("button", name="New conversation").first.click()
    eve.get_by_role("tab", name="Group").click()
    eve.fill("input[name=group]", "Book club")
    eve.fill("input[name=members]", "fay")
    eve.get_by_role("button", name="Create").click()
    say(eve, "chapter one?")
    row = fay.locator("[data-key^='g:']")
    expect(row.locator(".name")).to_have_text("Book club")
    row.click()
    expect(fay.locator(".from")).to_have_text("eve")
    expect(fay.locator(".head .status")).to_have_text("2 members")
    say(fay, "and two")
    expect(eve.locator(".bubble", has_text="and two")).to_be_visible()

    eve.get_by_role("button", name="Details").last.click()
    eve.fill("input[name=invite]", "gus")
    eve.get_by_role("button", name="Invite").click()
    expect(eve.locator(".people li", has_text="gus")).to_be_visible()
    expect(fay.locator(".messages")).to_contain_text("eve invited gus")
    eve.get_by_role("button", name="Remove gus").click()
    eve.get_by_role("dialog", name="Remove gus from the group?").get_by_role("button", name="Remove").click()
    expect(eve.locator(".people li", has_text="gus")).to_have_count(0)
    eve.keyboard.press("Escape")
    expect(eve.locator("dialog")).to_have_count(0)

    fay.get_by_role("button", name="Details").last.click()
    fay.get_by_role("button", name="Leave the group").click()
    asked = fay.get_by_role("dialog", name="Leave the group?")
    expect(asked.get_by_label("New owner")).to_have_count(0)
    asked.get_by_role("button", name="Leave").click()
    expect(fay.locator("[data-key^='g:']")).to_have_count(0)
    expect(eve.locator(".messages")).to_contain_text("fay left")


@pytest.mark.feature("R06")
def test_owner_sees_own_changes_transfers_and_leaves(world: BrowserWorld) -> None:
    uma, vic = world.log_in("uma"), world.log_in("vic")
    group = world.act("uma", "create_group", name="Rowing", members=["vic"])["group"]
    for page in (uma, vic):
        open_row(page, f"g:{group}")
    uma.get_by_role("button", name="Details").last.click()
    uma.get_by_role("button", name="Mute vic").click()
    expect(uma.locator(".messages")).to_contain_text("You muted vic")
    expect(vic.locator(".messages")).to_contain_text("uma muted you")
    uma.get_by_role("button", name="Unmute vic").click()
    uma.get_by_role("button", name="Make vic the owner").click()
    uma.get_by_role("dialog", name="Make vic the owner?").get_by_role("button", name="Transfer").click()
    expect(uma.locator(".people li", has_text="vic")).to_contain_text("owner")
    expect(uma.locator(".messages")).to_contain_text("You made vic the owner")
    expect(vic.locator(".messages")).to_contain_text("uma made you the owner")
    uma.reload()
    for words in ("You created the group", "You muted vic", "You unmuted vic", "You made vic the owner"):
        expect(uma.locator(".messages")).to_contain_text(words)

    vic.get_by_role("button", name="Details").last.click()
    vic.get_by_role("button", name="Leave the group").click()
    asked = vic.get_by_role("dialog", name="Leave the group?")
    expect(asked.get_by_label("New owner")).to_have_value("uma")
    asked.get_by_role("button", name="Transfer and leave").click()
    expect(vic.locator("[data-key^='g:']")).to_have_count(0)
    expect(uma.locator(".messages")).to_contain_text("vic made you the owner")
    expect(uma.locator(".messages")).to_contain_text("vic left")
    uma.get_by_role("button", name="Switch to Chinese").click()
    for words in ("你创建了群组", "你将 vic 禁言", "vic 将群主转给了你", "vic 退出了群组"):
        expect(uma.locator(".messages")).to_contain_text(words)
    uma.get_by_role("button", name="详情").last.click()
    uma.get_by_role("button", name="退出群组").click()
    uma.get_by_role("dialog", name="退出群组？").get_by_role("button", name="退出").click()
    expect(uma.locator("[data-key^='g:']")).to_have_count(0)


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@contextmanager
def image_host() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Another site with an image; the headers of every request to it."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(PIXEL)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_images_and_files_are_shown_and_unsafe_addresses_are_not(world: BrowserWorld) -> None:
    with image_host() as (host, asked):
        yan = world.log_in("yan")
        world.act("xia", "send", to="yan", kind="image", text=f"{host}/cat.png")
        open_row(yan, "u:xia")
        yan.get_by_role("button", name="Show the image from 127.0.0.1").wait_for()
        assert asked == [], "a sender learns nothing from a message that is read"
        yan.get_by_role("button", name="Show the image from 127.0.0.1").click()
        image = yan.locator(".bubble img")
        expect(image).to_be_visible()
        yan.wait_for_function("() => document.querySelector('.bubble img').naturalWidth === 1")
        assert "referer" not in asked[0] and "cookie" not in asked[0]
        world.act("xia", "send", to="yan", kind="image", body=base64.b64encode(PIXEL).decode())
        expect(image).to_have_count(2)
        yan.wait_for_function("() => [...document.querySelectorAll('.bubble img')].every((each) => each.naturalWidth)")
        shown = {"text": "https://example.org/files/q3.pdf", "fields": {"name": "Q3 report.pdf", "size": "2048"}}
        world.act("xia", "send", to="yan", kind="file", **shown)
        link = yan.get_by_role("link", name="Q3 report.pdf")
        expect(link).to_have_attribute("href", "https://example.org/files/q3.pdf")
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        expect(link).to_contain_text("2 KB")
        world.act("xia", "send", to="yan", kind="voice", text="https://example.org/a/hello%20there.ogg?x=1")
        expect(yan.get_by_role("link", name="hello there.ogg")).to_be_visible()
        for kind in ("image", "file", "video"):
            world.act("xia", "send", to="yan", kind=kind, text="javascript:alert(document.domain)")
        world.act("xia", "send", to="yan", kind="image", text="data:text/html,<script>alert(1)</script>")
        world.act("xia", "send", to="yan", kind="file", text="that is all")
        expect(yan.locator(".bubble")).to_have_count(9)
        expect(yan.locator(".bubble a")).to_have_count(3)  # the first image, the file and the voice message
        expect(yan.locator(".bubble img")).to_have_count(2)
        expect(yan.locator(".bubble").nth(4)).to_contain_text("Image")
        expect(yan.locator("[data-key='u:xia'] .line")).to_have_text("File")
        assert "A message of kind" not in yan.content()


@pytest.mark.feature("P27")
def test_a_room_is_live_and_counts_who_is_there(world: BrowserWorld) -> None:
    hal, ida = world.log_in("hal"), world.log_in("ida")
    for page in (hal, ida):
        begin(page, "Room", "room", "lobby")
    expect(hal.locator(".head .status")).to_have_text("2 people here")
    say(hal, "anyone?")
    expect(ida.locator(".bubble", has_text="anyone?")).to_have_count(1)
    ida.get_by_role("button", name="Details").last.click()
    ida.get_by_role("button", name="Leave the room").click()
    expect(hal.locator(".head .status")).to_have_text("1 person here")
    hal.reload()
    expect(hal.locator(".head .status")).to_have_text("1 person here")
    expect(hal.locator(".messages")).to_contain_text("It is quiet here")


def test_scheduled_messages_are_made_listed_cancelled_and_sent(world: BrowserWorld) -> None:
    jan = world.log_in("jan")
    begin(jan, "Person", "person", "kim")
    for text in ("much later", "never"):
        jan.get_by_label("Write a message").fill(text)
        jan.get_by_role("button", name="Send later").click()
        expect(jan.locator("textarea[name=later]")).to_have_value(text)
        jan.get_by_role("button", name="In an hour").click()
        jan.get_by_role("button", name="Schedule").click()
        expect(jan.locator(".waiting li", has_text=text)).to_be_visible()
        jan.keyboard.press("Escape")
        expect(jan.get_by_label("Write a message")).to_have_value("")
    world.act("jan", "schedule", to="kim", text="soon", at=int(time.time() * 1000) + 300)
    expect(jan.locator(".bubble", has_text="soon")).to_be_visible()
    jan.get_by_role("button", name="Send later").click()
    jan.locator(".waiting li", has_text="never").get_by_role("button").click()
    expect(jan.locator(".waiting li")).to_have_count(1)
    assert [each["text"] for each in world.act("jan", "scheduled")["scheduled"]] == ["much later"]


@pytest.mark.feature("R11", "P04")
def test_a_reload_keeps_what_is_here_and_shows_what_is_unread(world: BrowserWorld) -> None:
    for n in range(3):
        world.act("liz", "send", to="moe", text=f"first {n}")
    wait_for(lambda: unread_of(world, "moe") == 3, what="the messages")
    moe = world.log_in("moe")
    open_row(moe, "u:liz")
    expect(moe.locator(".bubble")).to_have_count(3)
    wait_for(lambda: unread_of(world, "moe") == 0, what="the server to know of the reading")
    moe.goto("about:blank")
    for n in range(4):
        world.act("liz", "send", to="moe", text=f"second {n}")
    moe.goto(world.url)
    row = moe.locator("[data-key='u:liz']")
    expect(row.locator(".count")).to_have_text("4")
    row.click()
    expect(moe.locator(".bubble .words")).to_have_text(
        [*(f"first {n}" for n in range(3)), *(f"second {n}" for n in range(4))]
    )
    expect(moe.locator(".new-line + .said")).to_contain_text("second 0")
    # Another browser has none of it, and lists what one has said elsewhere.
    liz = world.log_in("liz")
    expect(liz.locator("[data-key='u:moe'] .line")).to_have_text("You: second 3")
    # What is not there, or not for one, says so; nothing breaks, and nothing stays in the list.
    for place, words in (("g/nogroup", "nogroup"), ("u/nobody-here", "nobody-here")):
        liz.evaluate("(place) => { location.hash = `#/chat/${place}`; }", place)
        expect(liz.locator(".messages .empty")).to_contain_text("This conversation cannot be opened")
        expect(liz.locator(".messages .empty")).to_contain_text(words)
        expect(liz.get_by_label("Write a message")).to_have_count(0)
        expect(liz.locator(".list [data-key]")).to_have_count(1)
    liz.get_by_role("button", name="Back to the list").last.click()
    expect(liz.locator(".thread.vacant")).to_be_visible()
    open_row(liz, "u:moe")
    expect(liz.locator(".bubble")).to_have_count(7)


@pytest.mark.feature("B17")
def test_a_gap_is_shown_and_closed_page_by_page(world: BrowserWorld) -> None:
    group = world.act("ned", "create_group", name="Busy", members=["oda"])["group"]
    world.act("ned", "gsend", group=group, text="before 0")
    oda = world.log_in("oda")
    open_row(oda, f"g:{group}")
    expect(oda.locator(".bubble")).to_have_count(1)
    oda.goto("about:blank")
    for n in range(120):
        world.act("ned", "gsend", group=group, text=f"missed {n}")
    oda.goto(f"{world.url}/#/chat/g/{group}")
    expect(oda.locator(".bubble .words").last).to_have_text("missed 119")
    load = oda.get_by_role("button", name="Load more")
    expect(load).to_have_count(1)
    # The gap lies between what was here before and what came: nothing pretends to be next to each other.
    shown = oda.locator(".bubble .words").all_text_contents()
    assert shown[0] == "before 0" and shown[1] != "missed 0"
    for count in (101, 121):
        load.click()
        expect(oda.locator(".bubble")).to_have_count(count)
    expect(load).to_have_count(0)
    assert oda.locator(".bubble .words").all_text_contents() == ["before 0", *(f"missed {n}" for n in range(120))]
    oda.reload()
    expect(oda.locator(".bubble .words").last).to_have_text("missed 119")
    expect(load).to_have_count(0)


@pytest.mark.feature("R13")
def test_older_messages_come_as_one_scrolls_and_the_view_stays(world: BrowserWorld) -> None:
    for n in range(150):
        world.act("pam", "send", to="quin", text=f"line {n}")
        if n == 75:
            time.sleep(0.5)  # within the rate of one user
    quin = world.log_in("quin")
    open_row(quin, "u:pam")
    expect(quin.locator(".bubble .words").last).to_have_text("line 149")
    pane = quin.locator(".messages")
    for _ in range(40):
        if quin.locator(".bubble").count() == 150:
            break
        pane.evaluate("(pane) => { pane.scrollTop = 0; }")
        quin.wait_for_timeout(150)
    assert quin.locator(".bubble .words").all_text_contents() == [f"line {n}" for n in range(150)]
    expect(quin.locator(".messages")).to_contain_text("This is where it begins")
    quin.wait_for_timeout(300)  # what was loaded last has moved the view to where it was
    pane.evaluate("(pane) => { pane.scrollTop = 600; }")
    quin.wait_for_timeout(300)
    before = pane.evaluate("(pane) => pane.scrollTop")
    world.act("pam", "send", to="quin", text="new at the end")
    button = quin.get_by_role("button", name="1 new message")
    expect(button).to_be_visible()
    assert abs(pane.evaluate("(pane) => pane.scrollTop") - before) < 2, "who reads elsewhere is not moved"
    button.click()
    expect(quin.locator(".bubble .words").last).to_be_in_viewport()


@pytest.mark.feature("P25", "R18")
def test_what_is_written_while_the_server_is_away_is_sent_once_when_it_is_back(world: BrowserWorld) -> None:
    world.forgiven = ("WebSocket connection", "ERR_CONNECTION_REFUSED")
    rex = world.log_in("rex")
    begin(rex, "Person", "person", "sue")
    say(rex, "one")
    world.stop(kill=True)
    expect(rex.locator(".banner")).to_contain_text("No connection")
    rex.get_by_label("Write a message").fill("two")
    rex.keyboard.press("Enter")
    expect(rex.locator(".pending .words")).to_have_text("two")
    expect(rex.get_by_role("button", name="Try now")).to_be_visible()
    world.start()
    rex.evaluate("() => document.querySelector('.banner button')?.click()")  # it may have come back by itself
    expect(rex.locator(".pending")).to_have_count(0)
    expect(rex.locator(".banner")).to_have_count(0)
    sue = world.log_in("sue")
    open_row(sue, "u:rex")
    expect(sue.locator(".bubble .words")).to_have_text(["one", "two"])
