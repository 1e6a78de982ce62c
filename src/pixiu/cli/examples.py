"""Examples at the end of a command's help: lines to paste, as they are."""

__all__ = ["examples"]

_AS_IT_IS = "\b\n"
"""What keeps the paragraph behind it from being filled."""


def examples(*lines: str) -> str:
    """The end of a help page. Each line is a command for a shell; tests read them with the parser of the command."""
    return _AS_IT_IS + "\n".join(("Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))
