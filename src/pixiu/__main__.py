"""Let ``python -m pixiu`` be the command ``pixiu``, and Ctrl-C end it in silence while it still loads.

Loading takes a third of a second, and people press Ctrl-C in it; Python would show where it was.
"""

import signal

__all__ = ["main"]


def main() -> None:
    """Load the commands, then run one."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # and not ignored, as in the background of a shell
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pixiu.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
