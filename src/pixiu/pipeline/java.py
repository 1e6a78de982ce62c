"""Spark's Java process is started here, so that what it says passes through our hands.

It greets everybody with a few lines on stderr that nobody can do anything about, before any log setting is read. Those
are left out; everything else is passed on, line by line, until the process ends.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NOISE", "start_java", "worth_saying"]

NOISE = (
    b"WARNING: Using incubator modules:",
    b'Setting default log level to "',
    b"To adjust logging level use sc.setLogLevel(",
    b"Warning: Java versions > Java 11 can only operate in restricted mode",
)
"""How the lines begin that Java, Spark and its sketches say at every start."""


def start_java(settings: dict[str, str]) -> None:
    """Start the process that a Spark session will use, unless there is one: its settings come too late for it then."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="java's stderr", daemon=True).start()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def worth_saying(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without those that Java says at every start."""
    return (line for line in lines if not line.startswith(NOISE))


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as source:
        for line in worth_saying(source):
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
