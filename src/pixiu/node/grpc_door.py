"""gRPC for gomsg's clients, at a node or at a gateway of a cluster: the same door before the same gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.api.addresses import AddressRates
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.api.app import HttpApi
    from pixiu.api.grpc.server import GrpcServer
    from pixiu.config import Settings
    from pixiu.ports.clock import Clock
    from pixiu.roles.gateway import Gateway

__all__ = ["make_grpc"]


def make_grpc(api: HttpApi, gateway: Gateway, root: Path, settings: Settings, clock: Clock) -> GrpcServer | None:
    """The door, not open yet; None where ``gateway.grpc_port`` asks for none. Raises ``ConfigError``."""
    if settings.gateway.grpc_port < 0:
        return None
    assert api.administration is not None
    try:
        from pixiu.api.grpc.server import GrpcServer
    except ModuleNotFoundError as error:
        needed = f"gRPC needs the package {error.name}; install it with: {how_to_install('grpc')}"
        raise ConfigError(needed) from error
    security = settings.security
    is_secure = bool(security.tls_certificate)
    return GrpcServer(
        api.bridge, api.administration, gateway,
        AddressRates(clock, per_second=security.requests_per_second, burst=security.request_burst),
        output_mark_bytes=settings.gateway.output_mark_bytes,
        timeout_seconds=security.request_timeout_ms / 1000,
        certificate=(root / security.tls_certificate, root / security.tls_key) if is_secure else None,
        client_ca=root / security.tls_client_ca if security.tls_client_ca else None,
    )  # fmt: skip
