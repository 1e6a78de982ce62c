"""Python's collector of cycles, in a process that holds many objects and makes few cycles.

By default it looks at everything new after seven hundred objects, and at everything there is whenever that has grown by
a quarter: a node with a hundred thousand objects then stands still for tens of milliseconds, again and again.
"""

import gc

__all__ = ["spare_the_collector"]

COLLECT_AFTER = (6_000, 0, 2_000)
"""Few cycles are ever made here, so nearly everything that is looked at stays, and is looked at twice: when it is new
and once more. What is on its way comes and goes (512 sends are 4,600 objects): a first look that begins above that
sees only what stays; every second look is at what the first has left, too, and no other is. Still small looks, of one
to four milliseconds (25,000 objects took twenty), and hardly ever one at everything: one at a million objects would
stand in the way for a tenth of a second."""


def spare_the_collector() -> None:
    """What was loaded so far stays for good: do not look through it again and again for garbage.

    For a process that is a node and little else, once it has started; a program of its own with a node in it decides by
    itself.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
