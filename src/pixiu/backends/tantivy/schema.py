"""What the index holds of a message: numbers and terms, never its text.

::

    message_id   number; order of results, cursor, bounds of time
    event_id     number; of the record that said it
    sender       number of the user, 0 is the system
    party        numbers of the users who have it in their private timelines
    pair         u:<lower>:<higher> of a private message
    group        number of the group, 0 is a private message
    text         terms, with their places
    state        one document alone has it: how far the index is

How far the index is stands in a document of its own, which every commit replaces: what it holds and what it says of
itself change together or not at all.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pixiu.config.extras import how_to_install
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    import tantivy

__all__ = ["STATE", "find_tantivy", "index_folder", "make_schema", "pair_of"]

FORMAT = 1
"""Rises with the schema, the terms and tantivy's own format: an index of another format is made anew beside it."""

STATE = "state"


def index_folder(data: Path) -> Path:
    """Where the index of a data directory is."""
    return data / "pipeline" / "search" / f"v{FORMAT}"


def find_tantivy() -> Any:
    """The library, imported when it is needed: it is of the pipeline's packages."""
    try:
        import tantivy
    except ImportError as error:
        raise Unavailable(
            f"search needs tantivy, and it cannot be imported ({error}); "
            f"install the pipeline's packages: {how_to_install('pipeline')}"
        ) from error
    return tantivy


@cache
def make_schema() -> tantivy.Schema:
    """The schema of every index."""
    builder = find_tantivy().SchemaBuilder()
    builder.add_unsigned_field("message_id", stored=True, indexed=True, fast=True)
    builder.add_unsigned_field("event_id", indexed=True, fast=True)
    builder.add_unsigned_field("sender", indexed=True)
    builder.add_unsigned_field("party", indexed=True)
    builder.add_text_field("pair", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("group", stored=True, indexed=True, fast=True)
    builder.add_text_field("text", tokenizer_name="whitespace", index_option="position")
    builder.add_text_field(STATE, stored=True, tokenizer_name="raw", index_option="basic")
    schema: tantivy.Schema = builder.build()
    return schema


def pair_of(one: int, other: int) -> str:
    """A private conversation, whoever says it."""
    return f"u:{min(one, other)}:{max(one, other)}"
