"""Pixiu takes in every message, loses none, and can prove it.

Importing this package is cheap: it brings in nothing but the version. What a program uses has its own import::

    from pixiu.queue import Client
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
