"""The console: pages for people, as files that need no build, and how they are served."""

from pixiu.console.pages import Pages, console_pages

__all__ = ["Pages", "console_pages"]
