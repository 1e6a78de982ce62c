"""Users: create_user and user; ban_user and unban_user for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.directory import Erased
from pixiu.im.draft import Accepted, Actor, Answer, Draft, Params, drafted
from pixiu.model.errors import Conflict, NotFound, RequestError, TooLarge
from pixiu.model.names import OPERATOR, check_public_id, new_public_id, normalized, own_number
from pixiu.model.pixiu_pb2 import Record, UserChanged

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.model.user import Profile

__all__ = [
    "AVATAR_BYTES_MAX",
    "NAME_BYTES_MAX",
    "PROFILE",
    "ban_user",
    "create_user",
    "new_user",
    "unban_user",
    "user",
    "user_key",
]

NAME_BYTES_MAX = 256
AVATAR_BYTES_MAX = 2048
PROFILE = frozenset({"user", "name", "avatar", "fields"})


def create_user(context: Context, actor: Actor, params: Params) -> Draft:
    """Create a user, or change one's own profile: what is not given stays as it is.

    Without ``user`` a public id is made up. Params of other names become fields, as in the seed.
    """
    given = params.get("user")
    public_id = context.new_public_id("u") if given is None else read.public_id_text(given, "user")
    if context.directory.known_exactly(public_id) is None:
        public_id = new_public_id(public_id, what="user")
    name = read.line(params, "name", bytes_max=NAME_BYTES_MAX)
    avatar = read.line(params, "avatar", bytes_max=AVATAR_BYTES_MAX)
    fields = _fields(params)
    try:
        number = context.directory.find_user(public_id)
    except Erased as error:
        raise Conflict(f"{error}; the id is not given again") from None
    if number is None:
        record = new_user(context, public_id, actor=actor.user, name=name, avatar=avatar or "", fields=fields)
        return drafted(record, lambda accepted: _created(context, public_id, accepted), key=user_key(public_id))
    if number != actor.user and not actor.is_admin:
        raise Conflict(f"there is a user {public_id!r} already")
    profile = _profile(context, number)
    changed = UserChanged(
        user=number, public_id=public_id, name=profile.name if name is None else name,
        avatar=profile.avatar if avatar is None else avatar, fields={**profile.fields, **fields},
    )  # fmt: skip
    if len(changed.fields) > read.FIELDS_MAX:
        raise TooLarge(f"a user may have {read.FIELDS_MAX} fields, not {len(changed.fields)}")
    size = sum(len(key.encode()) + len(text.encode()) for key, text in changed.fields.items())
    if size > read.FIELDS_BYTES_MAX:
        raise TooLarge(f"the fields of a user may have {read.FIELDS_BYTES_MAX} bytes together, not {size}")
    record = Record(at=context.clock.now_ms(), actor=actor.user, user=changed)
    return drafted(record, lambda accepted: _view(_profile(context, number)))


def ban_user(context: Context, actor: Actor, params: Params) -> Draft:
    """Bar a user from logging in and acting. Open sessions end; what others see of the user stays. Idempotent."""
    return _set_ban(context, actor, params, is_banned=True)


def unban_user(context: Context, actor: Actor, params: Params) -> Draft:
    """Lift a ban. Idempotent."""
    return _set_ban(context, actor, params, is_banned=False)


def _set_ban(context: Context, actor: Actor, params: Params, *, is_banned: bool) -> Draft:
    public_id = read.public_id_text(read.required(params, "user"), "user")
    if normalized(public_id) == OPERATOR:
        raise RequestError(f"user must not be {OPERATOR!r}: the commands on the node's own machine act by that name")
    number = context.directory.find_user(check_public_id(public_id, what="user"))
    if number is None:
        raise NotFound(f"there is no user {public_id!r}")  # not UnknownUsers, which --dev would create
    if number == actor.user:
        raise RequestError("user must be someone else, not yourself")
    profile = _profile(context, number)
    changed = UserChanged(
        user=number, public_id=public_id, name=profile.name, avatar=profile.avatar, fields=profile.fields,
        is_banned=is_banned,
    )  # fmt: skip

    def answer(_: Accepted) -> Answer:
        context.directory.banned(number)
        return {"user": public_id, "is_banned": is_banned}

    return drafted(Record(at=context.clock.now_ms(), actor=actor.user, user=changed), answer)


def new_user(
    context: Context,
    public_id: str,
    *,
    actor: int = 0,
    name: str | None = None,
    avatar: str = "",
    fields: dict[str, str] | None = None,
) -> Record:
    """The record that creates a user. Append it under ``user_key``: then a public id is taken once."""
    changed = UserChanged(
        user=own_number(public_id) or 0, public_id=public_id, name=public_id if name is None else name, avatar=avatar,
        fields=fields or {},
    )  # fmt: skip
    return Record(at=context.clock.now_ms(), actor=actor, user=changed)


def user_key(public_id: str) -> bytes:
    """Under which a user is created. No number begins with this byte, so no send has such a key."""
    return b"\xffuser:" + public_id.encode()


def _created(context: Context, public_id: str, accepted: Accepted) -> Answer:
    if accepted.is_repeat:
        raise Conflict(f"there is a user {public_id!r} already")
    return _view(_profile(context, context.directory.user(public_id)))


def _fields(params: Params) -> dict[str, str]:
    """Fields that were named as such, and all params of other names."""
    own = {name: value for name, value in params.items() if name not in PROFILE and value is not None}
    return {**read.fields(params.get("fields")), **read.fields(own, "params")}


def user(context: Context, actor: Actor, params: Params) -> Answer:
    """A profile; one's own by default."""
    given = params.get("user")
    number = actor.user if given is None else context.directory.user(given)
    return _view(_profile(context, number))


def _profile(context: Context, number: int) -> Profile:
    profile = context.stores.users.get(number)
    if profile is None or profile.is_erased:
        raise NotFound(f"there is no user with the number {number}")
    return profile


def _view(profile: Profile) -> Answer:
    return {
        "user": profile.public_id,
        "name": profile.name,
        "avatar": profile.avatar,
        "fields": dict(profile.fields),
        "at": profile.created_at,
    }
