"""How packages that only some settings need come here. No package index is asked for Pixiu itself: it is not on one."""

from pathlib import Path

__all__ = ["how_to_install"]


def how_to_install(extra: str = "", *, root: Path = Path(__file__).parents[3]) -> str:
    """What to type for an extra of pyproject.toml, or for what is always needed: all that is locked, or just that."""
    one = f"pip install -e '.[{extra}]'" if extra else "pip install -e ."
    return f"make setup, or: {one}" if (root / "requirements" / "dev.txt").exists() else f"{one} in a clone of Pixiu"
