"""A chat as a screen: conversations at the left, their messages beside them, a line to type in that nothing disturbs.

On a narrow terminal the list and the messages take turns (Escape).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from pixiu.cli.chat.commands import EXIT, Commands
from pixiu.cli.chat.conversations import Conversations, name_of
from pixiu.cli.chat.history import History
from pixiu.model.errors import PixiuError
from pixiu.sdk import (
    Closed,
    ContactsEvent,
    GapEvent,
    Message,
    Online,
    PresenceEvent,
    RecallEvent,
    ReceiptEvent,
    RoomPresence,
    TypingEvent,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from pixiu.cli.chat.conversations import Conversation
    from pixiu.sdk import Client, Event, Place

__all__ = ["ChatScreen"]

LIST_WIDTH = 26
NARROW = 60
PAGE = 50
TYPING_EVERY_MS = 2_000


class ChatScreen(App[None]):
    """The screen of one user. ``error`` is what has ended the session, if something did."""

    TITLE = "Pixiu"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    #main {{ height: 1fr; }}
    #list {{ width: {LIST_WIDTH}; height: 100%; border: none; border-right: solid $primary; padding: 0; }}
    #history {{ width: 1fr; height: 100%; padding: 0 1; }}
    #history Static {{ width: 100%; height: auto; }}
    #history .day {{ text-align: center; }}
    #typing {{ height: 1; padding: 0 1; color: $text-muted; }}
    #status {{ height: 1; padding: 0 1; background: $panel; }}
    .narrow #list {{ width: 100%; border-right: none; }}
    .narrow.talk #list {{ display: none; }}
    .narrow.pick #history {{ display: none; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("ctrl+n", "turn(1)", "next"),
        ("ctrl+p", "turn(-1)", "previous"),
        ("pageup", "scroll(-1)", "older"),
        ("pagedown", "scroll(1)", "newer"),
        ("escape", "list", "list"),
        ("f1", "help", "help"),
    ]

    def __init__(self, me: Client) -> None:
        super().__init__()
        self.me = me
        self.error: PixiuError | None = None
        self.conversations = Conversations(me.name)
        self.current: Conversation | None = None
        self._commands = Commands(me, self.conversations, self.turn_to)
        self._list = OptionList(id="list")
        self._list.can_focus = False
        self._history = History(me.name)
        self._typing = Static(id="typing")
        self._input = Input(placeholder="Write a message, or /help", id="input")
        self._status = Static(id="status")
        self._note = ""
        self._state = "online"
        self._typed_ms = 0
        self._listed: list[Place] = []

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        with Horizontal(id="main"):
            yield self._list
            yield self._history
        yield self._typing
        yield self._input
        yield self._status

    async def on_mount(self) -> None:
        """Show what is known, and listen."""
        self.conversations.contacts(self.me.known)
        self._fit(self.size.width)
        self._draw_list()
        self._draw_status()
        self._input.focus()
        self.set_interval(0.5, self._draw_typing)
        self.run_worker(self._listen(), exit_on_error=False)
        self.run_worker(self._watch(), exit_on_error=False)
        self._later(self._refresh())

    def on_resize(self, event: events.Resize) -> None:
        """A terminal may become narrow."""
        self._fit(event.size.width)
        self._draw_list()

    def _fit(self, width: int) -> None:
        self.screen.set_class(width < NARROW, "narrow")
        self.screen.set_class(self.current is not None, "talk")
        self.screen.set_class(self.current is None, "pick")

    # What happens.

    async def _listen(self) -> None:
        try:
            async for message in self.me.messages():
                await self.arrived(message)
        except PixiuError as error:
            self.error = error
            self.exit()

    async def arrived(self, message: Message) -> None:
        """A message is here."""
        current = self.current.place if self.current is not None else None
        place = message.place(self.me.name)
        if place not in self.conversations.all and place.kind != "room":
            self._later(self._refresh())  # someone new: the server knows the name
        conversation, is_new = self.conversations.arrived(message, current)
        is_read = conversation is self.current
        if is_new and is_read:
            await self._history.append(message)
        is_from_others = message.sender != self.me.name and message.kind != "system"
        if is_from_others and conversation.place.kind == "with":
            self._later(self.me.receipt([message.message_id], "both" if is_read else "delivered"))
        if is_from_others and is_read and conversation.place.kind != "room":
            self._later(self._read(conversation))
        self._draw_list()

    async def _watch(self) -> None:
        try:
            async for event in self.me.events():
                await self._happened(event)
        except PixiuError:
            pass  # the other loop says it

    async def _happened(self, event: Event) -> None:
        match event:
            case Online():
                self._state = "online"
                self._draw_status()
            case Closed(reason, retry_ms):
                again = "" if retry_ms is None else f", next try in {retry_ms / 1000:.1f} s"
                self._state = f"offline: {reason}{again}"
                self._draw_status()
            case ContactsEvent(contacts):
                self.conversations.contacts(contacts)
                if self.current is not None:
                    self.current.unread = 0
            case ReceiptEvent(user, message_ids, kind, at):
                for message in self.conversations.receipt(user, message_ids, kind, at):
                    self._history.change(message)
                return
            case RecallEvent(message_id):
                found = self.conversations.recalled(message_id)
                if found is not None and found[0] is self.current:
                    self._history.change(found[1])
                return
            case PresenceEvent(user, state):
                self._present(user, is_online=state == "online")
            case TypingEvent(place, user):
                self.conversations.types(place, user, _now())
                self._draw_typing()
                return
            case RoomPresence(room, members, _, is_in):
                self.say(f"~{room}: {members} here" if is_in else f"you are out of ~{room}")
                return
            case GapEvent():
                self.say("some messages were missed; they are in the history")
            case _:
                return
        self._draw_list()

    def _present(self, user: str, *, is_online: bool) -> None:
        for conversation in self.conversations.all.values():
            if conversation.place.kind == "with" and conversation.place.name == user:
                conversation.is_online = is_online

    async def _refresh(self) -> None:
        """Names and counts as the server has them, and who is there."""
        self.conversations.contacts(await self.me.contacts())
        if self.current is not None:
            self.current.unread = 0
        for user, state in (await self.me.presence()).items():
            self._present(user, is_online=state == "online")
        self._draw_list()

    # What the person does.

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """A line was typed."""
        line, event.input.value = event.value, ""
        self.say("")
        if line.strip() in EXIT:
            self.exit()
            return
        place = self.current.place if self.current is not None else None
        self.run_worker(self._do(line, place), exit_on_error=False)

    async def _do(self, line: str, place: Place | None) -> None:
        try:
            shown = await self._commands.do(line, place)
        except PixiuError as error:
            self.say(f"{error}")
            if not line.startswith("/") and not self._input.value:
                self._input.value = line  # it was not said: nothing that was typed is lost
            return
        if isinstance(shown, Message) and shown.is_recalled:
            self._history.change(shown)
        elif isinstance(shown, Message):
            await self.arrived(shown)
        elif shown is not None:
            self.say(shown)
        if line.startswith("/contact"):
            self._later(self._refresh())
        self._draw_list()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the others that one types; not each key."""
        conversation, now = self.current, _now()
        if conversation is None or conversation.place.kind == "room" or not event.value or event.value.startswith("/"):
            return
        if now - self._typed_ms >= TYPING_EVERY_MS:
            self._typed_ms = now
            name, is_group = conversation.place.name, conversation.place.kind == "group"
            self._later(self.me.typing(group=name) if is_group else self.me.typing(name))

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A conversation was clicked."""
        await self.turn_to(self._listed[event.option_index])

    async def action_turn(self, step: int) -> None:
        """The next conversation of the list, or the one before."""
        places = [conversation.place for conversation in self.conversations.in_order()]
        if not places:
            return
        at = places.index(self.current.place) if self.current is not None and self.current.place in places else -1
        await self.turn_to(places[(at + step) % len(places) if at >= 0 else 0])

    def action_list(self) -> None:
        """On a narrow terminal: back to the list, and forth."""
        is_talking = self.screen.has_class("talk")
        self.screen.set_class(not is_talking and self.current is not None, "talk")
        self.screen.set_class(is_talking or self.current is None, "pick")

    def action_scroll(self, step: int) -> None:
        """A page up or down."""
        if step > 0:
            self._history.scroll_page_down(animate=False)
        elif self._history.scroll_y <= 0:
            self._history.ask_for_older()
        else:
            self._history.scroll_page_up(animate=False)

    async def action_help(self) -> None:
        """What one can type."""
        await self._do("/help", None)

    async def turn_to(self, place: Place) -> None:
        """Open a conversation. What was typed in the last one waits there."""
        typed = self._input
        if self.current is not None:
            self.current.draft = typed.value
        self.current = conversation = self.conversations.open(place)
        typed.value = conversation.draft
        typed.cursor_position = len(typed.value)
        typed.focus()
        self.say("")
        self._fit(self.size.width)
        await self._history.show(conversation)
        self._draw_list()
        if place.kind == "room":
            conversation.is_loaded, conversation.has_older = True, False
        elif not conversation.is_loaded:
            await self._load(conversation)
        if place.kind != "room":
            self._later(self._read(conversation))

    async def _load(self, conversation: Conversation) -> None:
        """The next older page; the newest, if there is none yet."""
        before = conversation.messages[0].message_id if conversation.is_loaded and conversation.messages else None
        place = conversation.place
        try:
            page = await self.me.history(
                place.name if place.kind == "with" else None,
                group=place.name if place.kind == "group" else None,
                before=before, limit=PAGE,
            )  # fmt: skip
        except PixiuError as error:
            self.say(str(error))
            conversation.has_older = False
            self._history.is_loading = False
            return
        added = [
            message for message in reversed(page.messages) if message.kind != "delete" and conversation.add(message)
        ]
        conversation.has_older = page.has_more
        was_loaded, conversation.is_loaded = conversation.is_loaded, True
        if conversation is self.current:
            if was_loaded:
                await self._history.prepend(added)
            else:
                await self._history.show(conversation)

    async def on_history_older(self) -> None:
        """One has scrolled to the top."""
        if self.current is not None:
            await self._load(self.current)

    async def _read(self, conversation: Conversation) -> None:
        place = conversation.place
        conversation.unread = 0
        if place.kind == "with":
            unread = [
                message.message_id
                for message in conversation.messages[-PAGE:]
                if message.sender == place.name and message.kind != "system"
            ]
            if unread:
                await self.me.receipt(unread, "both")
            await self.me.read(place.name)
        else:
            await self.me.read(group=place.name)
        self._draw_list()

    def _later(self, work: Awaitable[object]) -> None:
        """Something that nobody waits for; a failure of it is no news."""

        async def quietly() -> None:
            try:
                await work
            except PixiuError:
                pass

        self.run_worker(quietly(), exit_on_error=False)

    # What is seen.

    def say(self, note: str) -> None:
        """A note beside the state of the connection; a long one in the place of the messages' end."""
        self._note = note
        self._draw_status()

    def _draw_list(self) -> None:
        if not self._status.is_attached:  # the screen is going
            return
        conversations = self.conversations.in_order()
        self._listed = [conversation.place for conversation in conversations]
        shown = self._list
        width = (self.size.width if self.screen.has_class("narrow") else LIST_WIDTH - 1) - 2
        rows = [Option(self._row(conversation, width)) for conversation in conversations]
        shown.clear_options()
        shown.add_options(rows)
        if self.current is not None:
            shown.highlighted = self._listed.index(self.current.place)

    def _row(self, conversation: Conversation, width: int) -> Text:
        badge = f" {conversation.unread} " if conversation.unread else ""
        dot = "● " if conversation.is_online else "○ " if conversation.place.kind == "with" else "  "
        room = max(width - 2 - cell_len(badge), 1)
        title = conversation.title
        if cell_len(title) > room:
            title = set_cell_size(title, room - 1) + "…"
        row = Text(no_wrap=True, end="").append(dot, style="green" if conversation.is_online else "dim")
        row.append(set_cell_size(title, room), style="bold" if conversation.unread else "")
        row.append(badge, style="bold reverse")
        return row

    def _draw_typing(self) -> None:
        if not self._status.is_attached:  # the screen is going
            return
        names = self.current.typists(_now()) if self.current is not None else []
        several = f"{', '.join(names[:3])} {'types' if len(names) == 1 else 'type'} …" if names else ""
        self._typing.update(Text(several, no_wrap=True, overflow="ellipsis"))

    def _draw_status(self) -> None:
        if not self._status.is_attached:  # the screen is going
            return
        status = self._status
        is_long = "\n" in self._note
        status.styles.height = self._note.count("\n") + 2 if is_long else 1
        where = f" → {name_of(self.current.place)}" if self.current is not None else ""
        line = Text(f"{self.me.name}{where} · {self._state}", no_wrap=not is_long, overflow="ellipsis")
        if self._note:
            line = Text(f"{self._note}\n", overflow="fold") + line if is_long else Text(f"{self._note} · ") + line
        status.update(line)


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
