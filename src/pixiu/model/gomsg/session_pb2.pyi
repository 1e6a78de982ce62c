from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListRequest(_message.Message):
    __slots__ = ("uid", "after", "limit")
    UID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    uid: str
    after: int
    limit: int
    def __init__(self, uid: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Connected]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Connected, _Mapping]]] = ...) -> None: ...

class Connected(_message.Message):
    __slots__ = ("sid", "uid", "platform", "device", "gateway")
    SID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    sid: int
    uid: str
    platform: str
    device: str
    gateway: str
    def __init__(self, sid: _Optional[int] = ..., uid: _Optional[str] = ..., platform: _Optional[str] = ..., device: _Optional[str] = ..., gateway: _Optional[str] = ...) -> None: ...

class KickRequest(_message.Message):
    __slots__ = ("uid", "sid", "reason")
    UID_FIELD_NUMBER: _ClassVar[int]
    SID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    uid: str
    sid: int
    reason: str
    def __init__(self, uid: _Optional[str] = ..., sid: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class KickResponse(_message.Message):
    __slots__ = ("kicked",)
    KICKED_FIELD_NUMBER: _ClassVar[int]
    kicked: int
    def __init__(self, kicked: _Optional[int] = ...) -> None: ...
