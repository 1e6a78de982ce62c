"""``pixiu explain``: one message's way, hop by hop."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Json
from pixiu.cli.queue.output import moment_text, print_json, progress
from pixiu.cli.served import ServedData, find_node
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError, NotFound
from pixiu.runtime.datadir import DataDirectory

__all__ = ["app", "waterfall_lines"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

EXPLAIN_SECONDS = 120.0
BAR_WIDTH = 40
_PARTS = " ▏▎▍▌▋▊▉█"


@app.command(epilog=examples("pixiu explain 909694454728753152"))
def explain(
    message: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="As send answered it.")],
    data: ServedData = None,
    url: Url = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show one message's way: queue wait, flush, stores, push to each inbox, ack.

    It is read from the log; where that has been trimmed, from the lake of --data. A server that runs on --data, or at
    --url, is asked for it.
    """
    message_id = _message_id(message)
    directory, is_running = find_node(data, url)
    try:
        if is_running:
            path = f"/v1/admin/explain?message_id={message_id}"
            with progress("looking", None):
                found = dict(Caller(url, token, data).get(path, timeout_seconds=EXPLAIN_SECONDS))
        else:
            from pixiu.node import explain_stopped

            with DataDirectory.open(directory), progress("looking", None):
                found = dict(explain_stopped(directory, message_id))
    except NotFound as error:
        if url is not None:
            raise
        found = _from_lake(directory, message_id, error)
    if json:
        print_json(found)
    else:
        print("\n".join(waterfall_lines(found)))


def _message_id(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**63:
        raise ConfigError(
            f"a message id is a number such as 909694454728753152, as send answered and history shows it, not {text!r}"
        )
    return int(text)


def _from_lake(data: Path, message_id: int, error: NotFound) -> dict[str, Any]:
    """What the archive has of a message that the log has no more."""
    if not (data / "pipeline" / "lake" / "messages").is_dir():
        raise error
    from pixiu.pipeline.session import require_packages

    require_packages()
    from pixiu.pipeline.explain import explain_from_lake

    found = explain_from_lake(data, message_id)
    if found is None:
        raise NotFound(f"there is no message {message_id}, neither in the log nor in the lake of {data}")
    return found


def waterfall_lines(found: dict[str, Any]) -> list[str]:
    """The answer for people: a line per hop, with a bar from where it began to where it ended."""
    where = f"in {found['group']}" if "group" in found else f"to {found['to']}" if "to" in found else "by push"
    size = counted(found["bytes"], "byte")
    lines = [
        f"message {found['message_id']} ({found['kind']}, {size}) from {found['from']} {where}",
        f"accepted {moment_text(found['accepted_at'])}, event {found['event_id']}, from the {found['source']}",
        "",
    ]
    rows = [(hop["hop"], hop["after_ms"] - hop["ms"], hop["ms"], _SAID[hop["hop"]]) for hop in found["hops"]]
    for inbox in found["inboxes"]:
        place = f"{inbox['user']} on {inbox['platform']}"
        said = "waited for a session" if inbox["waited"] else f"through {inbox['gateway'] or 'the gateway'}"
        rows.append(("push", inbox["after_ms"] - inbox["push_ms"], inbox["push_ms"], f"{place}, {said}"))
        again = f", pushed again {counted(inbox['resent'], 'time')}" if inbox["resent"] else ""
        if inbox["ack_ms"] is not None:
            rows.append(("ack", inbox["after_ms"], inbox["ack_ms"], f"{place}{again}"))
        else:
            rows.append(("ack", inbox["after_ms"], None, f"{place}: {_ENDS[inbox['outcome']]}{again}"))
    total = max((begin + (took or 0) for _, begin, took, _ in rows), default=0)
    lines += [_line(name, begin, took, total, said) for name, begin, took, said in rows]
    if not any(hop["hop"] == "flush" for hop in found["hops"]):
        lines.append("flush and stores: not in the log (a node that was killed within the second, or hop_sample = 0)")
    if found["not_in_inboxes"]:
        lines.append(found["not_in_inboxes"])
    elif not found["inboxes"]:
        lines.append("handed to nobody yet: it waits in the inboxes it is for, or expired there")
    if not found["is_whole"]:
        lines.append(f"looked through event {found['read_through']}; what came later is not shown")
    return lines


_SAID = {"write": "queue wait: accepted to appended", "flush": "appended to committed", "store": "committed to applied"}
_ENDS = {"handed": "not acked yet", "expired": "expired", "dead": "given up"}


def _line(name: str, begin: float, took: float | None, total: float, said: str) -> str:
    time = f"{took:10.3f} ms" if took is not None else f"{'-':>13}"
    return f"{name:<6}{time}  │{_bar(begin, took or 0, total)}│ {said}"


def _bar(begin: float, took: float, total: float) -> str:
    """A bar of eighths, at least one of them wide, at its place within the whole."""
    if total <= 0:
        return _PARTS[1].ljust(BAR_WIDTH)
    place = min(int(begin / total * BAR_WIDTH), BAR_WIDTH - 1)
    eighths = max(1, min(round(took / total * BAR_WIDTH * 8), (BAR_WIDTH - place) * 8))
    return (" " * place + _PARTS[8] * (eighths // 8) + _PARTS[eighths % 8]).rstrip(" ").ljust(BAR_WIDTH)[:BAR_WIDTH]
