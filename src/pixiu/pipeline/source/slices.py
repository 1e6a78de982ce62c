"""Slices as texts, to travel through Spark to whoever reads them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pixiu.pipeline.source.decode import records_of
from pixiu.pipeline.source.journal import Slice
from pixiu.pipeline.source.remote import RemoteSlice, records_of_remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.records.unfold import Records

__all__ = ["SLICES_DDL", "records_in", "slice_of", "text_of"]

SLICES_DDL = "slice STRING"


def text_of(part: Slice | RemoteSlice) -> str:
    """A slice as a text."""
    return json.dumps(asdict(part))


def slice_of(text: str) -> Slice | RemoteSlice:
    """A text as a slice."""
    fields = json.loads(text)
    return RemoteSlice(**fields) if "server" in fields else Slice(**fields)


def records_in(part: Slice | RemoteSlice) -> Iterator[Records]:
    """What a slice holds, wherever it is."""
    return records_of(part) if isinstance(part, Slice) else records_of_remote(part)
