"""gomsg's PushRequest as JSON, as its gateway reads it: the names of the proto file, enums as numbers or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.push import PUSH
from pixiu.model.inbox import NEED_ACK, NEED_NOTIFICATION, NEED_OFFLINE

if TYPE_CHECKING:
    from pixiu.im.draft import Params

__all__ = ["push_params"]

_OPTIONS = {
    "NONE": 0,
    "NEED_ACK": NEED_ACK,
    "NEED_OFFLINE": NEED_OFFLINE,
    "NEED_NOTIFICATION": NEED_NOTIFICATION,
}


def push_params(body: Params) -> Params:
    """The params of the action ``push``. Protobuf's JSON also knows fields in camelCase and enums by name."""
    names = {_camel(name): name for name in PUSH}
    params = {names.get(name, name): value for name, value in body.items()}
    params["msg_options"] = _option(params.get("msg_options"))
    own = params.get("exclusive_msg_options")
    if isinstance(own, dict):
        params["exclusive_msg_options"] = {user: _option(option) for user, option in own.items()}
    params["platform_config"] = _platforms(params.get("platform_config"))
    exclusive = params.get("exclusive_platform_config")
    if isinstance(exclusive, dict):
        params["exclusive_platform_config"] = {user: _platforms(each) for user, each in exclusive.items()}
    return params


def _option(value: object) -> object:
    return _OPTIONS.get(value, value) if isinstance(value, str) else value


def _platforms(value: object) -> object:
    if not isinstance(value, dict):
        return value
    names = {"withoutPlatforms": "without_platforms"}
    return {names.get(name, name): each for name, each in value.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
