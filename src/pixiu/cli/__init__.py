"""The commands: one file per verb, each with a typer application named ``app``."""
