"""`make bench-core`: the messaging core in one process, on the embedded backend, durable."""

import argparse
import os
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.messaging import backlog, group, private, rebuild
from benchmarks.queue.generator import build_directory
from benchmarks.queue.machine import facts
from benchmarks.queue.report import print_section, print_verdict, write_json, write_markdown
from benchmarks.queue.section import Section
from pixiu.runtime.collector import spare_the_collector

SECTIONS = ("private", "group", "backlog", "rebuild")


def main() -> int:
    """Run the sections asked for. Exit 0 when every target was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.messaging", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000, help="private messages per round")
    parser.add_argument("--sends", type=int, default=4_000, help="group messages per round")
    parser.add_argument("--rebuild", nargs="+", type=int, default=[10_000, 100_000, 1_000_000], metavar="MESSAGES")
    parser.add_argument("--data", type=Path, help="a directory on the disk to use (benchmarks/.build)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    console = Console()
    folder = (arguments.data or build_directory()).resolve()
    machine = facts(folder)
    for name in ("TCP", "Valkey", "NATS"):
        del machine[name]
    for name, value in machine.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    spare_the_collector()  # as pixiu serve does
    sections: list[Section] = []
    loads: list[float] = []
    for name in arguments.only:
        loads.append(os.getloadavg()[0])
        section = uvloop.run(_measure(name, folder, arguments))
        section.notes.append(f"Load average before: {loads[-1]:.2f}.")
        sections.append(section)
        print_section(console, section)
    print_verdict(console, sections)
    options = {"rounds": arguments.rounds, "private messages": arguments.messages, "group sends": arguments.sends}
    if arguments.json:
        write_json(arguments.json, machine, options, sections)
    if arguments.markdown:
        write_markdown(arguments.markdown, machine, options, sections, name="bench-core")
    return 0 if all(check.passed for section in sections for check in section.checks) else 1


async def _measure(name: str, folder: Path, arguments: argparse.Namespace) -> Section:
    if name == "private":
        return await private.measure(folder, rounds=arguments.rounds, count=arguments.messages)
    if name == "group":
        return await group.measure(folder, rounds=arguments.rounds, sends=arguments.sends)
    if name == "backlog":
        return await backlog.measure(folder, rounds=arguments.rounds)
    return await rebuild.measure(folder, sizes=sorted(arguments.rebuild))
