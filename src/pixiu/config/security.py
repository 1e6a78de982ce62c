"""Settings of who may come in, and how much of it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Count, Milliseconds, Positive, Section

__all__ = ["SecuritySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Section):
    """Tokens, TLS, and what a stranger may cost."""

    name_in_file: ClassVar[str] = "security"

    token_algorithm: Literal["EdDSA", "HS256"] = "EdDSA"
    """How new keys sign. EdDSA lets others verify without being able to sign."""

    token_ms: Annotated[int, Bounds(1_000)] = 24 * 3_600_000
    """How long a token is good for, where nothing else is said."""

    clock_skew_ms: Annotated[int, Bounds(0, 600_000)] = 5_000
    """How far the clock of whoever issued a token may be off."""

    auth_url: str = ""
    """URL of your HTTP server that validates tokens; empty: tokens are verified with the keys in the data directory."""

    auth_timeout_ms: Milliseconds = 3_000
    """How long ``auth_url`` may take to answer."""

    auth_cache_ms: Annotated[int, Bounds(0, 3_600_000)] = 30_000
    """New logins with a token may use an earlier answer of ``auth_url`` for this long."""

    auth_recheck_ms: Annotated[int, Bounds(100, 86_400_000)] = 60_000
    """The credential of every open connection is checked again this often; changed keys are noticed within a second."""

    auth_rechecks_per_second: Positive = 100
    """Rechecks that one process sends to ``auth_url`` per second; with more connections a round takes longer."""

    auth_identity_ms: Annotated[int, Bounds(1_000, 2_592_000_000)] = 3_600_000
    """An identity from ``auth_url`` expires this long after its last confirmation, or at its earlier ``expires_at``."""

    tls_certificate: str = ""
    """A file with the certificate chain (PEM). With it the client port speaks TLS 1.2 and up, and nothing else."""

    tls_key: str = ""
    """The file with its private key (PEM)."""

    tls_client_ca: str = ""
    """Only clients with a certificate of this authority (PEM) are let in; empty asks for none."""

    tls_reload_ms: Milliseconds = 10_000
    """How often the files are looked at for a new certificate."""

    body_bytes_max: Annotated[int, Bounds(1024, 256 * 2**20)] = 2**20
    """Largest body of an HTTP request; a larger one is refused before it is read."""

    request_timeout_ms: Milliseconds = 30_000
    """An HTTP request that takes longer than this is given up."""

    requests_per_second: Count = 1_000
    """HTTP requests that one address may make per second on average; 0 is no limit."""

    request_burst: Positive = 2_000
    """HTTP requests that one address may make at once before the average counts."""

    http_connections_max: Positive = 2_000
    """HTTP connections open at a time; more are answered with 503."""

    http_connections_per_address: Positive = 500
    """Of these, how many one address may have; more are answered with 503. This machine's own address has no limit."""

    cors_origins: str = ""
    """Web origins that may call the HTTP API beside the server's own, as "https://a.example, https://b.example"."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset(
        {"auth_url", "tls_certificate", "tls_key", "tls_client_ca", "cors_origins"}
    )
