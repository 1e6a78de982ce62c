"""The router: who entered and left which room, from all gateways, for all brokers that ask."""

from pixiu.roles.router.router import Router

__all__ = ["Router"]
