"""``pixiu gateway``: one of the processes that ``pixiu serve --gateways N`` starts. Not for people."""

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def gateway() -> None:
    """Hold clients' connections for the node that started this; its orders come on the standard input."""
    from pixiu.node.gateways.process import run_gateway

    raise typer.Exit(run_gateway())
