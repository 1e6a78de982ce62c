"""The proxy: takes an action, checks it, drops repeats, appends it to the log, and answers."""

from pixiu.roles.proxy.service import Proxy

__all__ = ["Proxy"]
