"""What waits in the stores, for the pipeline's audit: counted where no node runs, asked where one does."""

from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.cli.calling import Caller
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.runtime.datadir import find_server

if TYPE_CHECKING:
    from pixiu.roles.carrier.cut import Cut

__all__ = ["take_cut"]

CUT_SECONDS = 610.0


def take_cut(data: Path) -> "Cut":
    """The cut of a data directory. Raises ``Unavailable`` if a node runs there that cannot be asked."""
    from pixiu.pipeline.cut import read_cut, take_cut_of

    holder = find_server(data)
    if holder is None or holder.http is None:
        return take_cut_of(data)
    try:
        return read_cut(Caller(None, None, data).lines("/v1/admin/cut", timeout_seconds=CUT_SECONDS))
    except PixiuError as error:
        raise Unavailable(
            f"the node on {data} (pid {holder.pid}) did not say what waits in its stores: {error}"
        ) from error
