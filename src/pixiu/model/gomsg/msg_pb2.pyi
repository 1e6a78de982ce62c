from google.protobuf import any_pb2 as _any_pb2
from pixiu.model.gomsg import error_pb2 as _error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageOption(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[MessageOption]
    NEED_ACK: _ClassVar[MessageOption]
    NEED_OFFLINE: _ClassVar[MessageOption]
    NEED_NOTIFICATION: _ClassVar[MessageOption]
NONE: MessageOption
NEED_ACK: MessageOption
NEED_OFFLINE: MessageOption
NEED_NOTIFICATION: MessageOption

class ClientPayload(_message.Message):
    __slots__ = ("seq", "ack", "ping", "sub")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    SUB_FIELD_NUMBER: _ClassVar[int]
    seq: str
    ack: Ack
    ping: Ping
    sub: SubRoomRequest
    def __init__(self, seq: _Optional[str] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., sub: _Optional[_Union[SubRoomRequest, _Mapping]] = ...) -> None: ...

class ServerPayload(_message.Message):
    __slots__ = ("seq", "need_ack", "pong", "msgs_wrapper", "sub_resp")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NEED_ACK_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    MSGS_WRAPPER_FIELD_NUMBER: _ClassVar[int]
    SUB_RESP_FIELD_NUMBER: _ClassVar[int]
    seq: str
    need_ack: bool
    pong: Pong
    msgs_wrapper: MessagesWrapper
    sub_resp: CommonResponse
    def __init__(self, seq: _Optional[str] = ..., need_ack: _Optional[bool] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., msgs_wrapper: _Optional[_Union[MessagesWrapper, _Mapping]] = ..., sub_resp: _Optional[_Union[CommonResponse, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: str
    def __init__(self, seq: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pong(_message.Message):
    __slots__ = ("code", "msg")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MSG_FIELD_NUMBER: _ClassVar[int]
    code: _error_pb2.Code
    msg: str
    def __init__(self, code: _Optional[_Union[_error_pb2.Code, str]] = ..., msg: _Optional[str] = ...) -> None: ...

class SubRoomRequest(_message.Message):
    __slots__ = ("room", "params")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    room: str
    params: _any_pb2.Any
    def __init__(self, room: _Optional[str] = ..., params: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class CommonResponse(_message.Message):
    __slots__ = ("seq", "code", "msg")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MSG_FIELD_NUMBER: _ClassVar[int]
    seq: str
    code: _error_pb2.Code
    msg: str
    def __init__(self, seq: _Optional[str] = ..., code: _Optional[_Union[_error_pb2.Code, str]] = ..., msg: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("seq", "options", "body")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    seq: str
    options: MessageOption
    body: _any_pb2.Any
    def __init__(self, seq: _Optional[str] = ..., options: _Optional[_Union[MessageOption, str]] = ..., body: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class MessagesWrapper(_message.Message):
    __slots__ = ("msgs",)
    MSGS_FIELD_NUMBER: _ClassVar[int]
    msgs: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, msgs: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...
