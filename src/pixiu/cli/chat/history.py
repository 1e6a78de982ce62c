"""The messages of one conversation on the screen: day by day, with ticks; older ones come when one scrolls up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import VerticalScroll
from textual.message import Message as Posted
from textual.widgets import Static

from pixiu.cli.chat.conversations import day_of, described, ticks_of, time_of
from pixiu.cli.shown import shown

if TYPE_CHECKING:
    from pixiu.cli.chat.conversations import Conversation
    from pixiu.sdk import Message

__all__ = ["History", "line_of"]


class History(VerticalScroll):
    """Shows one conversation. It stays at the end while one is there, and where it is while one reads above."""

    can_focus = False

    class Older(Posted):
        """The top is reached: what is older is wanted."""

    def __init__(self, own: str) -> None:
        super().__init__(id="history")
        self._own = own
        self._lines: dict[int, Static] = {}
        self._days: dict[str, Static] = {}
        self._conversation: Conversation | None = None
        self.is_loading = False

    @property
    def texts(self) -> list[str]:
        """What is shown, for whoever cannot see it."""
        return [str(child.content) for child in self.children if isinstance(child, Static)]

    async def show(self, conversation: Conversation | None) -> None:
        """Another conversation, at its end."""
        self._conversation = conversation
        self._lines.clear()
        self._days.clear()
        await self.remove_children()
        if conversation is not None:
            await self.mount_all(self._widgets(conversation.messages))
        self.scroll_end(animate=False, immediate=False)

    def _widgets(self, messages: list[Message]) -> list[Static]:
        """Lines for messages that follow each other, with the days between them."""
        made: list[Static] = []
        for message in messages:
            day = day_of(message)
            if day not in self._days:
                self._days[day] = Static(Text(f"── {day} ──", style="dim"), classes="day")
                made.append(self._days[day])
            line = Static(line_of(message, self._own), classes="mine" if message.sender == self._own else "theirs")
            self._lines[message.message_id] = line
            made.append(line)
        return made

    async def refresh_all(self) -> None:
        """Something came in between: draw all of it, and stay where one reads."""
        conversation = self._conversation
        if conversation is None:
            return
        from_end = self.max_scroll_y - self.scroll_y
        self._lines.clear()
        self._days.clear()
        async with self.batch():
            await self.remove_children()
            await self.mount_all(self._widgets(conversation.messages))
        self.call_after_refresh(self._stay, from_end)

    async def prepend(self, messages: list[Message]) -> None:
        """Older messages, all of them before what is shown; one stays where one reads."""
        from_end = self.max_scroll_y - self.scroll_y
        async with self.batch():
            day = self._days.pop(day_of(messages[-1]), None) if messages else None
            if day is not None:
                await day.remove()  # the day begins earlier now
            if messages:
                await self.mount_all(self._widgets(messages), before=0 if self.children else None)
        self.call_after_refresh(self._stay, from_end)

    def _stay(self, from_end: float) -> None:
        self.scroll_to(y=max(self.max_scroll_y - from_end, 0), animate=False, immediate=True)
        self.is_loading = False

    async def append(self, message: Message) -> None:
        """A message at the end; one that belongs elsewhere is put there."""
        conversation = self._conversation
        if conversation is None:
            return
        if conversation.messages and conversation.messages[-1].message_id != message.message_id:
            await self.refresh_all()
            return
        is_at_end = self.scroll_y >= self.max_scroll_y - 1
        await self.mount_all(self._widgets([message]))
        if is_at_end:
            self.scroll_end(animate=False, immediate=False)

    def change(self, message: Message) -> None:
        """A message has other ticks, or was taken back."""
        line = self._lines.get(message.message_id)
        if line is not None:
            line.update(line_of(message, self._own))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Ask for older messages at the top."""
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value:
            self.ask_for_older()

    def ask_for_older(self) -> None:
        """If there may be any, and they are not on their way."""
        conversation = self._conversation
        if conversation is not None and conversation.is_loaded and conversation.has_older and not self.is_loading:
            self.is_loading = True
            self.post_message(self.Older())


def line_of(message: Message, own: str) -> Text:
    """One message. What people write is shown as it is, never as markup."""
    text = Text(f"{time_of(message)} ", style="dim")
    content = shown(described(message), keeps_lines=True)
    if message.kind == "system":
        return text.append(content, style="dim italic")
    text.append(message.sender, style="bold cyan" if message.sender == own else "bold green")
    text.append(": ", style="dim")
    text.append(content, style="dim italic" if message.is_recalled or message.is_missing else "not dim")
    ticks = ticks_of(message, own)
    if ticks:
        text.append(f"  {ticks}", style="cyan" if message.read_at else "dim")
    return text
