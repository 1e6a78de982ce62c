"""What happens in one seed, as plain data: who there is, what they do, what goes wrong.

The script is drawn before anything runs, from a source of chance of its own, so a shrinker can drop lines from it and
the others stay as they are. A line names its targets by numbers that are resolved when it is run: what it means may
depend on what came before, whether it can be run never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from pixiu.testing.messaging.weather import MessagingWeather

__all__ = ["END_MS", "HEAL_MS", "DevicePlan", "Line", "Script", "draw_script"]

HEAL_MS = 6_000
"""From here on nothing goes wrong any more."""
LAST_MS = 7_000
"""From here on few do anything new."""
END_MS = 7_700
"""From here on nobody does."""

NAMES = ("alice", "101", "bob", "卡罗尔", "77", "dave")
PLATFORMS = ("ios", "web", "desktop")
GROUPS = ("club", "500", "team")

SAYING = ("send", "send", "send", "gsend", "gsend", "self", "push", "system")
DOING = (
    "join", "quit", "create_group", "invite", "remove", "mute", "unmute", "block", "unblock", "contact", "unlink",
    "recall", "read", "receipt", "schedule", "unschedule", "history", "sync", "rename",
)  # fmt: skip
MOVING = ("connect", "disconnect", "vanish", "deafen")
BLOWS = (
    "kill", "crash", "power", "restart", "freeze", "clock", "warp", "stores", "lane", "queue-store", "full", "slow",
    "netsplit", "storm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """A device: whose, on which platform, and how it behaves."""

    user: int
    platform: str
    name: str
    habit: str
    """prompt, slow, lazy (acks many at once) or deaf (never acks)."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happens. ``who`` is a device for what people do, and nothing for a blow."""

    number: int
    at_ms: int
    kind: str
    who: int = -1
    pick: int = 0
    count: int = 1
    for_ms: int = 0

    @property
    def is_blow(self) -> bool:
        """Is it something that goes wrong?"""
        return self.kind in BLOWS

    def __str__(self) -> str:
        text = f"{self.number:4d}  at {self.at_ms:5d} ms  {self.kind}"
        if self.who >= 0:
            text += f" by device {self.who}"
        if self.count > 1:
            text += f" x{self.count}"
        return text + (f" for {self.for_ms} ms" if self.for_ms else "")


@dataclass(frozen=True, slots=True)
class Script:
    """All of a seed."""

    born_ms: tuple[int, ...]
    """When each user is created."""
    devices: tuple[DevicePlan, ...]
    groups: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The users' public ids."""
        return NAMES[: len(self.born_ms)]


def draw_script(rng: random.Random, weather: MessagingWeather) -> Script:
    """Draw a seed's script."""
    user_count = rng.choice((2, 3, 3, 4, 6))
    born_ms = tuple(0 if user < 2 or rng.random() < 0.7 else rng.randint(0, HEAL_MS) for user in range(user_count))
    devices = _draw_devices(rng, user_count)
    present = [who for who in range(len(devices)) if rng.random() < 0.75]
    lines = [Line(0, rng.randint(0, 1_500), "connect", who) for who in present]
    groups = GROUPS[: rng.randint(1, len(GROUPS))]
    founders = [who for who, device in enumerate(devices) if not born_ms[device.user]]
    lines += [
        Line(0, rng.randint(250, 700), "create_group", rng.choice(founders), index + len(groups) * rng.randrange(1000))
        for index in range(len(groups))
    ]
    lines += _draw_deeds(rng, len(devices))
    lines += _draw_meetings(rng, devices, user_count)
    lines += _draw_blows(rng, weather)
    lines += [
        Line(0, rng.randint(HEAL_MS + 50, LAST_MS), rng.choice(("send", "send", "gsend")), who, rng.randrange(1 << 16))
        for who in range(len(devices))
        if rng.random() < 0.5
    ]
    lines.sort(key=lambda line: (line.at_ms, line.kind, line.who, line.pick))
    numbered = tuple(
        Line(number, line.at_ms, line.kind, line.who, line.pick, line.count, line.for_ms)
        for number, line in enumerate(lines)
    )
    return Script(born_ms, devices, groups, numbered)


def _draw_devices(rng: random.Random, user_count: int) -> tuple[DevicePlan, ...]:
    habits = rng.choice((("prompt",), ("prompt", "prompt", "slow", "lazy"), ("prompt", "prompt", "prompt", "deaf")))
    devices: list[DevicePlan] = []
    for user in range(user_count):
        for platform in rng.sample(PLATFORMS, rng.choice((1, 1, 2, 3))):
            for _ in range(rng.choice((1, 2, 2, 3)) if platform == "web" else rng.choice((1, 1, 1, 2))):
                devices.append(DevicePlan(user, platform, f"d{len(devices)}", rng.choice(habits)))
    return tuple(devices)


def _mix(rng: random.Random, kinds: tuple[str, ...]) -> list[str]:
    """Each seed has its own mix: some kinds often, some never."""
    return [kind for kind in kinds for _ in range(rng.choice((0, 1, 1, 3)))] or [kinds[0]]


def _draw_deeds(rng: random.Random, device_count: int) -> list[Line]:
    saying, doing, moving = _mix(rng, SAYING), _mix(rng, DOING), _mix(rng, MOVING)
    shares = rng.choice(((8, 1, 1), (5, 4, 1), (4, 2, 4)))
    quiet = rng.choice((False, False, True))
    lines = []
    for _ in range(rng.choice((20, 40, 70))):
        kinds = rng.choices((saying, doing, moving), shares)[0]
        kind = rng.choice(kinds)
        count = rng.choice((1, 1, 1, 2, 6)) if kind in SAYING and not quiet else 1
        for_ms = rng.choice((300, 1_000, 2_500)) if kind in ("deafen", "schedule") else 0
        at_ms = rng.randint(300, HEAL_MS)
        lines.append(Line(0, at_ms, kind, rng.randrange(device_count), rng.randrange(1 << 16), count, for_ms))
    return lines


def _draw_meetings(rng: random.Random, devices: tuple[DevicePlan, ...], user_count: int) -> list[Line]:
    """Someone comes online at the very moment at which a message for them is sent."""
    lines = []
    for _ in range(rng.choice((0, 2, 5))):
        lines += _meeting(rng, devices, rng.randrange(len(devices)), user_count, rng.randint(1_500, LAST_MS), "send")
    # A later message, or a later login, would repair what a meeting breaks: so the last ones are each a user's last.
    last = {devices[who].user: who for who in rng.sample(range(len(devices)), len(devices))}
    for who in last.values():
        if rng.random() < 0.7:
            lines += _meeting(rng, devices, who, user_count, rng.randint(LAST_MS + 50, END_MS - 200), "system")
    lines += [
        Line(0, rng.randint(LAST_MS, END_MS), rng.choice(("disconnect", "vanish")), who)
        for who, device in enumerate(devices)
        if who not in last.values() and device.platform == "web" and rng.random() < 0.3
    ]
    return lines


def _meeting(
    rng: random.Random, devices: tuple[DevicePlan, ...], who: int, user_count: int, at_ms: int, kind: str
) -> list[Line]:
    to = devices[who].user + user_count * rng.randrange(1000)
    return [
        Line(0, at_ms - rng.randint(300, 900), "disconnect", who),
        Line(0, at_ms, kind, rng.randrange(len(devices)), to),
        Line(0, at_ms + rng.randint(0, rng.choice((5, 40, 120))), "connect", who),
    ]


def _draw_blows(rng: random.Random, weather: MessagingWeather) -> list[Line]:
    kinds = [
        kind
        for kind in _mix(rng, BLOWS)
        if (weather.may_crash or kind not in ("crash", "power")) and (weather.is_embedded or kind not in ("stores",))
    ]
    if not kinds:
        return []
    lines = []
    for _ in range(rng.choice((0, 1, 2, 4, 8))):
        kind = rng.choice(kinds)
        for_ms = int(rng.choice((1_500, 3_000) if kind == "freeze" else (30, 200, 800, 2_500)) * rng.uniform(0.5, 1.5))
        lines.append(Line(0, rng.randint(300, HEAL_MS - 200), kind, pick=rng.randrange(1 << 16), for_ms=for_ms))
    return lines
