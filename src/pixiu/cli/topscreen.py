"""The screen of ``pixiu top``. Imported only where there is a terminal to show it on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.containers import Grid, Horizontal, Vertical
from textual.widgets import DataTable, Footer, Label, Sparkline, Static

from pixiu.cli.queue.output import bytes_text
from pixiu.cli.samples import HOPS, sample_of
from pixiu.cli.top import milliseconds
from pixiu.model.counted import counted
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.binding import BindingType

    from pixiu.cli.samples import Reading

__all__ = ["TopScreen"]

HISTORY = 120
"""Samples that a sparkline shows."""

RATES = (
    ("accepted", "accepted/s"),
    ("delivered", "delivered/s"),
    ("acked", "acked/s"),
    ("room_deliveries", "room deliveries/s"),
)


class Tile(Vertical):
    """A number with its past."""

    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=name, classes="tile")
        self._title = title
        self._past: deque[float] = deque([0.0] * 2, maxlen=HISTORY)

    def compose(self) -> ComposeResult:
        """Title, number, line."""
        yield Label(self._title, classes="title")
        yield Label("–", classes="value")
        yield Sparkline(list(self._past), summary_function=max)

    def show(self, value: float) -> None:
        """One more value."""
        self._past.append(value)
        self.query_one(".value", Label).update(f"{value:,.0f}")
        self.query_one(Sparkline).data = list(self._past)


class TopScreen(App[None]):
    """Reads in a thread of its own, so that a slow server does not freeze the keys."""

    TITLE = "pixiu top"
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("p", "pause", "Pause")]
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #head { height: 1; padding: 0 1; background: $primary-background; }
    #head Label { width: 1fr; }
    #state { text-align: right; }
    #state.bad { color: $error; text-style: bold; }
    #tiles { grid-size: 4; grid-gutter: 0 1; height: 6; padding: 0 1; }
    .tile { border: round $primary 40%; padding: 0 1; height: 6; }
    .tile .title { color: $text-muted; }
    .tile .value { text-style: bold; }
    .tile Sparkline { height: 2; }
    #tables { height: 1fr; padding: 0 1; }
    .box { border: round $primary 40%; border-title-color: $text; border-title-style: bold; height: 1fr; }
    #left { width: 2fr; }
    #right { width: 3fr; }
    #hops { height: 7; }
    DataTable { height: 1fr; }
    """

    def __init__(self, url: str, read: Callable[[], Reading], first: Reading, *, interval_ms: int) -> None:
        super().__init__()
        self._url = url
        self._read = read
        self._before = first
        self._interval_ms = interval_ms
        self._is_paused = False
        self._is_reading = False

    def compose(self) -> ComposeResult:
        """Head, rates, tables."""
        yield Horizontal(Label("", id="where"), Label("", id="state"), id="head")
        yield Grid(*(Tile(name, title) for name, title in RATES), id="tiles")
        with Horizontal(id="tables"):
            with Vertical(id="left"):
                yield _table("hops", "Latency per hop")
                yield _table("node", "Node")
            with Vertical(id="right"):
                yield _table("rooms", "Hot rooms")
                yield _table("topics", "Topics")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._columns("hops", "hop", "p50", "p90", "p99", "samples")
        self._columns("node", "what", "now")
        self._columns("rooms", "room", "deliveries/s", "messages/s", "members")
        self._columns("topics", "topic", "size", "reader", "lag")
        self.query_one("#where", Label).update(f"pixiu top  {self._url}")
        self.query_one("#state", Label).update("looking …")
        self.set_interval(self._interval_ms / 1000, self._look)

    def action_pause(self) -> None:
        """Stop the picture, or let it go on."""
        self._is_paused = not self._is_paused
        self.query_one("#state", Label).update("paused" if self._is_paused else "looking …")

    def _look(self) -> None:
        if not self._is_paused and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_once, thread=True)

    def _read_once(self) -> None:
        try:
            now = self._read()
        except PixiuError as error:
            self.call_from_thread(self._failed, str(error))
        else:
            self.call_from_thread(self._show, now)
        finally:
            self._is_reading = False

    def _failed(self, text: str) -> None:
        state = self.query_one("#state", Label)
        state.update(text)
        state.add_class("bad")

    def _show(self, now: Reading) -> None:
        sample = sample_of(self._before, now)
        self._before = now
        state = self.query_one("#state", Label)
        problems = sample["problems"]
        state.update("; ".join(problems) or f"up {_uptime(sample['uptime_ms'])}  {sample['version']}")
        state.set_class(bool(problems), "bad")
        for name, _ in RATES:
            self.query_one(f"#{name}", Tile).show(sample["rates"][name])
        hops = sample["hops"]
        self._rows("hops", [(name, *_latency(hops[name])) for name in HOPS])
        self._rows("node", _node_rows(sample))
        self._rows("rooms", [_room_row(each) for each in sample["hot_rooms"]])
        self._rows("topics", _topic_rows(sample["topics"]))

    def _columns(self, name: str, *columns: str) -> None:
        table = self.query_one(f"#{name} DataTable", DataTable)
        table.add_columns(*columns)

    def _rows(self, name: str, rows: list[tuple[str, ...]]) -> None:
        """Change what has changed: the table stays where it was scrolled to."""
        table = self.query_one(f"#{name} DataTable", DataTable)
        if table.row_count != len(rows):
            table.clear()
            table.add_rows(rows)
            return
        for at, row in enumerate(rows):
            for column, text in enumerate(row):
                table.update_cell_at((at, column), text, update_width=True)  # type: ignore[arg-type]


def _table(name: str, title: str) -> Static | Vertical:
    box = Vertical(DataTable(show_cursor=False, zebra_stripes=True), id=name, classes="box")
    box.border_title = title
    return box


def _latency(hop: Reading) -> tuple[str, str, str, str]:
    return milliseconds(hop["p50"]), milliseconds(hop["p90"]), milliseconds(hop["p99"]), f"{hop['count']:,}"


def _node_rows(sample: Reading) -> list[tuple[str, ...]]:
    process, stores = sample["process"], sample["stores"]
    lag = max((lane["lag"] for lane in sample["lanes"]), default=0)
    return [
        ("connections", f"{sample['connections']:,} of {sample['connections_max']:,}"),
        ("sessions", f"{sample['sessions']:,}"),
        ("rooms", f"{sample['rooms']:,} with {sample['room_sessions']:,}"),
        ("room talk/s", f"{sample['rates']['room_messages']:,.0f}"),
        ("logins/s", f"{sample['rates']['logins']:,.0f}"),
        ("refused/s", f"{sample['rates']['refused']:,.0f}"),
        ("lag of the stores", counted(lag, "event", is_grouped=True)),
        ("memory", bytes_text(process["rss_bytes"])),
        ("cpu", f"{sample['cpu']:.0%}"),
        ("journal", bytes_text(sample["journal_bytes"])),
        ("stores", bytes_text(stores["stores_bytes"])),
        ("free on disk", bytes_text(stores["free_bytes"])),
    ]


def _room_row(room: Reading) -> tuple[str, ...]:
    return room["room"], f"{room['deliveries']:,.0f}", f"{room['messages']:,.1f}", f"{room['members']:,}"


def _topic_rows(topics: list[Reading]) -> list[tuple[str, ...]]:
    """A line per reader; a topic without one has a line too."""
    rows: list[tuple[str, ...]] = []
    for topic in topics:
        size = bytes_text(topic["bytes"])
        readers = topic["subscribers"] or [{"name": "–", "lag": 0}]
        rows += [(topic["name"], size, each["name"], f"{each['lag']:,}") for each in readers]
    return rows


def _uptime(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if days else f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s"
