"""Settings of the providers that ring phones."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pixiu.config.section import Bounds, Milliseconds, Positive, Section

__all__ = ["PhoneSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSettings(Section):
    """APNs and FCM, for ``horn.provider = "phones"``."""

    name_in_file: ClassVar[str] = "phones"

    apns_key_file: str = ""
    """The signing key of your Apple account (a .p8 file); empty leaves APNs out."""

    apns_key_id: str = ""
    """The id of that key, ten characters."""

    apns_team_id: str = ""
    """The id of your team, ten characters."""

    apns_topic: str = ""
    """The bundle id of the app; a device may register another one with its token."""

    apns_url: str = "https://api.push.apple.com"
    """APNs itself; ``https://api.sandbox.push.apple.com`` for apps in development."""

    fcm_account_file: str = ""
    """The service account of your Firebase project (a JSON file); empty leaves FCM out."""

    fcm_url: str = "https://fcm.googleapis.com"
    """FCM itself. Where its access tokens come from is in the account's file."""

    ca_file: str = ""
    """Certificates (PEM) to trust in place of the machine's own, as for a proxy of yours."""

    timeout_ms: Milliseconds = 10_000
    """How long a provider may take to connect, or be silent while it owes an answer; then it is connected anew."""

    in_flight_max: Annotated[int, Bounds(1, 1000)] = 64
    """Notifications on their way to a provider at a time, over one connection; more wait."""

    waiting_max: Positive = 500
    """Notifications that wait for a provider; more are put off in the log. Fewer than carrier.tasks_in_flight_max."""

    expire_ms: Annotated[int, Bounds(0, 28 * 86_400_000)] = 86_400_000
    """How long a provider keeps a notification for a phone that is off; 0: it is for now or never."""

    no_text: str = "New message"
    """What a phone shows of a message that has no text, or one that is encrypted."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset(
        {"apns_key_file", "apns_key_id", "apns_team_id", "apns_topic", "fcm_account_file", "ca_file"}
    )
