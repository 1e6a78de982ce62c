"""``pixiu queue``: run a queue, and everything one can ask of it.

One module per kind of command; each adds its own to ``app`` with ``register``.
"""

import typer

from pixiu.cli.queue import bench, delays, files, nodes, publish, redact, serving, smss, subscribe, topics

__all__ = ["app"]

app = typer.Typer(
    help="The queue: a durable log with topics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def queue() -> None:
    """The queue: a durable log with topics that many can read."""


for module in (serving, topics, publish, subscribe, delays, nodes, files, redact, smss, bench):
    module.register(app)
