from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[Code]
    UNKNOWN: _ClassVar[Code]
    NO_ACK: _ClassVar[Code]
    TOO_MANY_MSGS_TO_BE_SENT: _ClassVar[Code]
    SESSION_NOT_FOUND: _ClassVar[Code]
    NEW_SESSION_ON_SAME_PLATFORM: _ClassVar[Code]
NONE: Code
UNKNOWN: Code
NO_ACK: Code
TOO_MANY_MSGS_TO_BE_SENT: Code
SESSION_NOT_FOUND: Code
NEW_SESSION_ON_SAME_PLATFORM: Code

class Detail(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: Code
    def __init__(self, code: _Optional[_Union[Code, str]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...
