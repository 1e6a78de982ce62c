"""Charts as SVG, drawn here, in the colours that the page around them defines."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["bars", "heat_map", "lines"]

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 26
MAP_WIDTH = 1080
LABELS_LEFT = 190
ROW = 20
GRID_LINES = 4

Series = tuple[str, "Sequence[float | None]"]


def lines(
    label: str, times: Sequence[int], series: Sequence[Series], *, show: Callable[[float], str] = "{:,.0f}".format
) -> str:
    """Lines over time. ``times`` are milliseconds; a value of None leaves a gap."""
    values = [value for _, each in series for value in each if value is not None]
    labels = ticks(max(values, default=0))
    most = labels[-1]
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    span = max(times[-1] - times[0], 1) if times else 1

    def x(at: int) -> float:
        return LEFT + (inner * (times[at] - times[0]) / span if len(times) > 1 else inner / 2)

    def y(value: float) -> float:
        return TOP + tall * (1 - value / most)

    parts = [_grid(labels, show)]
    for number, (_, each) in enumerate(series):
        for run in _runs(each):
            points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in run)
            colour = f"var(--chart-{number % 4 + 1})"
            if len(run) == 1:
                (at, value) = run[0]
                parts.append(f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
            else:
                if number == 0:
                    area = f"{x(run[0][0]):.1f},{y(0):.1f} {points} {x(run[-1][0]):.1f},{y(0):.1f}"
                    parts.append(f'<polygon points="{area}" fill="{colour}" opacity=".12"/>')
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    if times:
        parts += [_text(LEFT, HEIGHT - 8, clock(times[0])), _text(WIDTH - RIGHT, HEIGHT - 8, clock(times[-1]), "end")]
    keys = "".join(
        f'<span class="key"><i class="c{number % 4 + 1}"></i>{escape(name)}</span>'
        for number, (name, _) in enumerate(series)
    )
    return f"<figure><figcaption>{keys}</figcaption>{_svg(label, HEIGHT, ''.join(parts))}</figure>"


def bars(label: str, columns: Sequence[tuple[str, float]], *, show: Callable[[float], str] = "{:,.0f}".format) -> str:
    """Upright bars, each with a name below it, as far as there is room for names."""
    labels = ticks(max((value for _, value in columns), default=0))
    most = labels[-1]
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step = inner / max(len(columns), 1)
    wide = min(step * 0.7, 48)
    named = max(1, -(-len(columns) * 62 // inner))
    parts = [_grid(labels, show)]
    for number, (name, value) in enumerate(columns):
        high = tall * value / most
        x = LEFT + step * number + (step - wide) / 2
        parts.append(
            f'<rect x="{x:.1f}" y="{TOP + tall - high:.1f}" width="{wide:.1f}" height="{max(high, 0.5):.1f}" rx="2" '
            f'fill="var(--chart-1)"><title>{escape(name)}: {escape(show(value))}</title></rect>'
        )
        if number % named == 0:
            parts.append(_text(x + wide / 2, HEIGHT - 8, name, "middle"))
    return f"<figure>{_svg(label, HEIGHT, ''.join(parts))}</figure>"


def heat_map(label: str, times: Sequence[int], rows: Sequence[tuple[str, Sequence[int]]]) -> str:
    """A line per room, a cell per step, darker where more was said."""
    inner = MAP_WIDTH - LABELS_LEFT - RIGHT
    height = TOP + ROW * len(rows) + BOTTOM
    wide = inner / max(len(times), 1)
    most = max((value for _, values in rows for value in values), default=0) or 1
    parts = []
    for line, (name, values) in enumerate(rows):
        top = TOP + ROW * line
        parts.append(_text(LABELS_LEFT - 8, top + ROW - 6, _cut(name, 26), "end"))
        parts.append(f'<rect x="{LABELS_LEFT}" y="{top + 1}" width="{inner}" height="{ROW - 2}" class="cold"/>')
        for at, value in enumerate(values):
            if value:
                parts.append(
                    f'<rect x="{LABELS_LEFT + wide * at:.2f}" y="{top + 1}" width="{wide + 0.3:.2f}" '
                    f'height="{ROW - 2}" fill="var(--hot)" opacity="{0.15 + 0.85 * (value / most) ** 0.5:.2f}">'
                    f"<title>{escape(name)}, {clock(times[at])}: {value:,}</title></rect>"
                )
    if times:
        parts += [
            _text(LABELS_LEFT, height - 8, clock(times[0])),
            _text(MAP_WIDTH - RIGHT, height - 8, clock(times[-1]), "end"),
        ]
    return f"<figure>{_svg(label, height, ''.join(parts), MAP_WIDTH)}</figure>"


# Parts.


def ticks(value: float) -> list[int]:
    """The labels of an axis from 0 up to the first one that is not below ``value``: two to five whole numbers."""
    step = 1
    while step * 10 * GRID_LINES < value:
        step *= 10
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor * GRID_LINES >= value)
    return [step * number for number in range(max(ceil(value / step), 1) + 1)]


def clock(ms: int) -> str:
    """A time of day in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d %b %H:%M")


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Stretches without a gap."""
    found: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [run for run in found if run]


def _grid(labels: Sequence[float], show: Callable[[float], str]) -> str:
    tall = HEIGHT - TOP - BOTTOM
    parts = []
    for value in labels:
        y = TOP + tall * (1 - value / labels[-1])
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(LEFT - 8, y + 4, show(value), "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(label: str, height: int, content: str, width: int = WIDTH) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}">{content}</svg>'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
