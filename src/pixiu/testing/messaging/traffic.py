"""What people do: the lines of a script as requests.

A line's ``pick`` is resolved against what there is when it is run: the fifth of the messages that this device was
shown, the group of that number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.testing.messaging.requests import ADMIN

if TYPE_CHECKING:
    from pixiu.testing.messaging.devices import Device
    from pixiu.testing.messaging.script import Line
    from pixiu.testing.messaging.world import World

__all__ = ["Traffic"]

CREATE_TRIES = 30
OPTIONS = (0, 1, 2, 3, 3, 7, 7)
PLATFORM_CHOICES: tuple[dict[str, list[str]] | None, ...] = (
    None,
    None,
    {"platforms": ["ios"]},
    {"platforms": ["web", "watch"]},
    {"without_platforms": ["web"]},
)


class Traffic:
    """Performs what the script says that people do."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create_user(self, user: int) -> None:
        """A user comes into being; whoever runs the system tries until it is done."""
        name = self._world.script.names[user]
        self._world.clients.ask(ADMIN, "create_user", {"user": name}, tries_max=CREATE_TRIES)

    def perform(self, line: Line) -> None:
        """Do what a line says."""
        device = self._world.devices[line.who]
        match line.kind:
            case "connect":
                device.connect()
            case "disconnect":
                device.disconnect()
            case "vanish":
                device.vanish()
            case "deafen":
                device.deafen(line.for_ms)
            case "send" | "gsend" | "self" | "push" | "system":
                for index in range(line.count):
                    self._say(line, device, index)
            case "recall" | "receipt" | "schedule" | "unschedule":
                self._about_messages(line, device)
            case "read" | "history" | "sync":
                self._reading(line, device)
            case _:
                self._manage(line, device)

    def _user(self, pick: int) -> str:
        names = self._world.script.names
        return names[pick % len(names)]

    def _group(self, pick: int) -> str:
        groups = self._world.script.groups
        return groups[pick % len(groups)]

    def _ask(self, device: Device, action: str, send_id: str = "", **params: object) -> None:
        params = {name.removesuffix("_"): value for name, value in params.items()}
        self._world.clients.ask(device.plan.user, action, params, device=device, send_id=send_id)

    # Saying.

    def _say(self, line: Line, device: Device, index: int) -> None:
        text = f"m{line.number}.{index}"
        # Some clients do not name their sends; nothing can find their repeats, so they do not repeat them.
        send_id = text if line.pick % 8 else ""
        # One line of five is urgent, and overtakes what waits in slow inboxes.
        more = {} if (line.pick >> 4) % 5 else {"priority": "high"}
        match line.kind:
            case "send":
                self._ask(device, "send", send_id, to=self._user(line.pick), text=text, **more)
            case "self":
                self._ask(device, "send", send_id, to=device.user_name, text=text)
            case "gsend":
                self._ask(device, "gsend", send_id, group=self._group(line.pick), text=text, **more)
            case "system":
                params: dict[str, object] = {"to": self._user(line.pick), "text": text}
                self._world.clients.ask(ADMIN, "system", params, send_id=send_id)
            case _:
                self._push(line, text, send_id)

    def _push(self, line: Line, text: str, send_id: str) -> None:
        pick, names = line.pick, self._world.script.names
        users = [name for number, name in enumerate(names) if pick >> number & 1] or [names[0]]
        params: dict[str, object] = {
            "uids": [*users, users[0]],
            "msg_bodies": [text] if pick % 3 else [text, f"{text}b"],
            "msg_options": OPTIONS[pick % len(OPTIONS)],
        }
        config = PLATFORM_CHOICES[pick // 7 % len(PLATFORM_CHOICES)]
        if config is not None:
            params["platform_config"] = config
        if pick % 5 == 0:
            params["exclusive_msg_options"] = {users[0]: OPTIONS[pick // 5 % len(OPTIONS)]}
        if pick % 11 == 0:
            params["exclusive_platform_config"] = {users[0]: {"platforms": ["desktop"]}}
        self._world.clients.ask(ADMIN, "push", params, send_id=send_id)

    # About what was said.

    def _about_messages(self, line: Line, device: Device) -> None:
        pick = line.pick
        if line.kind == "schedule":
            now = self._world.clock.now_ms()
            where = {"to": self._user(pick)} if pick % 3 else {"group": self._group(pick)}
            text = f"s{line.number}"
            self._ask(device, "schedule", text, at=now + line.for_ms, text=text, **where)
        elif line.kind == "unschedule":
            own = [
                asked.result["schedule_id"]
                for asked in self._world.clients.asked
                if asked.user == device.plan.user and "schedule_id" in asked.result
            ]
            if own:
                self._ask(device, "unschedule", schedule_id=own[pick % len(own)])
        elif line.kind == "recall":
            own_ids = [
                message_id
                for asked in self._world.clients.asked
                if asked.user == device.plan.user and asked.action in ("send", "gsend")
                for message_id in asked.message_ids
            ]
            ids = own_ids if pick % 8 else list(device.held)
            if ids:
                self._ask(device, "recall", message_id=str(ids[-1 - pick % len(ids)]))
        elif device.held:
            shown = list(device.held)[-3:]
            kind = ("delivered", "read", "both")[pick % 3]
            self._ask(device, "receipt", message_ids=[str(each) for each in shown], kind=kind)

    def _reading(self, line: Line, device: Device) -> None:
        pick = line.pick
        place = {"with_": self._user(pick)} if pick % 2 else {"group": self._group(pick)}
        if line.kind == "read":
            through = {"through": str(list(device.held)[-1 - pick % len(device.held)])} if device.held else {}
            self._ask(device, "read", **place, **through)
        elif line.kind == "history":
            self._ask(device, "history", **place)
        else:
            where: dict[str, object] = {name.removesuffix("_"): {each: "0"} for name, each in place.items()}
            self._world.clients.ask(device.plan.user, "sync", where, device=device)

    # Contacts and groups.

    def _manage(self, line: Line, device: Device) -> None:
        pick, group = line.pick, self._group(line.pick)
        match line.kind:
            case "create_group":
                names = self._world.script.names
                born_ms = self._world.script.born_ms
                members = [
                    name
                    for number, name in enumerate(names)
                    if (pick + 7 * line.at_ms) >> number & 1 and born_ms[number] <= line.at_ms
                ]
                params: dict[str, object] = {"group": group, "name": group, "members": members}
                if line.at_ms % 5 == 0:
                    params["needs_approval"] = True
                self._world.clients.ask(device.plan.user, "create_group", params, device=device, tries_max=3)
            case "join" | "quit":
                self._ask(device, line.kind, group=group)
            case "invite" | "remove" | "mute" | "unmute":
                op = "approve" if line.kind == "invite" and pick % 3 == 0 else line.kind
                self._ask(device, "manage", group=group, user=self._user(pick // 3), op=op)
            case "rename":
                self._ask(device, "create_user", user=device.user_name, name=f"name {line.number}")
            case _:
                self._ask(device, line.kind, user=self._user(pick))
