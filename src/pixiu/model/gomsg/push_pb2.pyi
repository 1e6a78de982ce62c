from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from pixiu.model.gomsg import msg_pb2 as _msg_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushRequest(_message.Message):
    __slots__ = ("uids", "platform_config", "exclusive_platform_config", "msg_bodies", "msg_options", "exclusive_msg_options", "reserve")
    class ExclusivePlatformConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: PlatformConfig
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[PlatformConfig, _Mapping]] = ...) -> None: ...
    class ExclusiveMsgOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _msg_pb2.MessageOption
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_msg_pb2.MessageOption, str]] = ...) -> None: ...
    UIDS_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_PLATFORM_CONFIG_FIELD_NUMBER: _ClassVar[int]
    MSG_BODIES_FIELD_NUMBER: _ClassVar[int]
    MSG_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_MSG_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    uids: _containers.RepeatedScalarFieldContainer[str]
    platform_config: PlatformConfig
    exclusive_platform_config: _containers.MessageMap[str, PlatformConfig]
    msg_bodies: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    msg_options: _msg_pb2.MessageOption
    exclusive_msg_options: _containers.ScalarMap[str, _msg_pb2.MessageOption]
    reserve: _any_pb2.Any
    def __init__(self, uids: _Optional[_Iterable[str]] = ..., platform_config: _Optional[_Union[PlatformConfig, _Mapping]] = ..., exclusive_platform_config: _Optional[_Mapping[str, PlatformConfig]] = ..., msg_bodies: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ..., msg_options: _Optional[_Union[_msg_pb2.MessageOption, str]] = ..., exclusive_msg_options: _Optional[_Mapping[str, _msg_pb2.MessageOption]] = ..., reserve: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class PlatformConfig(_message.Message):
    __slots__ = ("platforms", "without_platforms")
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    platforms: _containers.RepeatedScalarFieldContainer[str]
    without_platforms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, platforms: _Optional[_Iterable[str]] = ..., without_platforms: _Optional[_Iterable[str]] = ...) -> None: ...
