"""The log of a queue in other processes, as ``ports.log.Log``."""

from pixiu.backends.queue_log.log import RemoteLog

__all__ = ["RemoteLog"]
