"""The log of a data directory, wherever it is; and its slices as texts, to travel through Spark to who reads them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pixiu.pipeline.source.decode import Wanted, decode, records_of
from pixiu.pipeline.source.journal import JournalFolder, Slice
from pixiu.pipeline.source.kafka import KafkaLogOf, KafkaSlice, decode_kafka, records_of_kafka
from pixiu.pipeline.source.remote import RemoteLog, RemoteSlice, decode_remote, records_of_remote
from pixiu.runtime.log_note import noted_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.pipeline.records.unfold import Records

__all__ = ["SLICES_DDL", "AnyLog", "AnySlice", "batches_in", "log_of", "records_in", "slice_of", "text_of"]

SLICES_DDL = "slice STRING"

AnyLog = JournalFolder | RemoteLog | KafkaLogOf
AnySlice = Slice | RemoteSlice | KafkaSlice


def log_of(data: Path, index_folder: Path | None = None) -> JournalFolder | KafkaLogOf:
    """The log of a data directory: its own journal, or a Kafka's."""
    return KafkaLogOf(data) if noted_log(data) else JournalFolder(data, index_folder=index_folder)


def text_of(part: AnySlice) -> str:
    """A slice as a text."""
    return json.dumps(asdict(part))


def slice_of(text: str) -> AnySlice:
    """A text as a slice."""
    fields = json.loads(text)
    if "kafka" in fields:
        return KafkaSlice(**fields)
    return RemoteSlice(**fields) if "server" in fields else Slice(**fields)


def records_in(part: AnySlice) -> Iterator[Records]:
    """What a slice holds, wherever it is."""
    if isinstance(part, KafkaSlice):
        return records_of_kafka(part)
    return records_of(part) if isinstance(part, Slice) else records_of_remote(part)


def batches_in(part: AnySlice, wanted: Wanted) -> Iterator[Any]:
    """What is wanted of a slice, wherever it is."""
    if isinstance(part, KafkaSlice):
        return decode_kafka(part, wanted)
    return decode(part, wanted) if isinstance(part, Slice) else decode_remote(part, wanted)
