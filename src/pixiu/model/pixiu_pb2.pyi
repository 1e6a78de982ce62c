from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChatMsgType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT: _ClassVar[ChatMsgType]
    IMAGE: _ClassVar[ChatMsgType]
    VOICE: _ClassVar[ChatMsgType]
    VIDEO: _ClassVar[ChatMsgType]
    FILE: _ClassVar[ChatMsgType]
    DELETE: _ClassVar[ChatMsgType]
    KEY: _ClassVar[ChatMsgType]
    PLUGIN: _ClassVar[ChatMsgType]

class MsgPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOW: _ClassVar[MsgPriority]
    NORMAL: _ClassVar[MsgPriority]
    HIGH: _ClassVar[MsgPriority]

class ChatMsgStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SENDING: _ClassVar[ChatMsgStatus]
    SENT: _ClassVar[ChatMsgStatus]
    FAILED: _ClassVar[ChatMsgStatus]
    DELIVERED: _ClassVar[ChatMsgStatus]
    READ: _ClassVar[ChatMsgStatus]
    DELETED: _ClassVar[ChatMsgStatus]

class EncryptType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAIN: _ClassVar[EncryptType]
    CUSTOM: _ClassVar[EncryptType]
    CHACHA20: _ClassVar[EncryptType]
    TWOFISH: _ClassVar[EncryptType]
    AES: _ClassVar[EncryptType]

class ChatType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[ChatType]
    P2P: _ClassVar[ChatType]
    GROUP: _ClassVar[ChatType]
    SYSTEM: _ClassVar[ChatType]
TEXT: ChatMsgType
IMAGE: ChatMsgType
VOICE: ChatMsgType
VIDEO: ChatMsgType
FILE: ChatMsgType
DELETE: ChatMsgType
KEY: ChatMsgType
PLUGIN: ChatMsgType
LOW: MsgPriority
NORMAL: MsgPriority
HIGH: MsgPriority
SENDING: ChatMsgStatus
SENT: ChatMsgStatus
FAILED: ChatMsgStatus
DELIVERED: ChatMsgStatus
READ: ChatMsgStatus
DELETED: ChatMsgStatus
PLAIN: EncryptType
CUSTOM: EncryptType
CHACHA20: EncryptType
TWOFISH: EncryptType
AES: EncryptType
NONE: ChatType
P2P: ChatType
GROUP: ChatType
SYSTEM: ChatType

class MsgChat(_message.Message):
    __slots__ = ("msgId", "userId", "fromId", "toId", "tm", "devId", "sendId", "msgType", "data", "priority", "refMessageId", "status", "sendReply", "recvReply", "readReply", "encType", "chatType", "subMsgType", "keyPrint", "params")
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MSGID_FIELD_NUMBER: _ClassVar[int]
    USERID_FIELD_NUMBER: _ClassVar[int]
    FROMID_FIELD_NUMBER: _ClassVar[int]
    TOID_FIELD_NUMBER: _ClassVar[int]
    TM_FIELD_NUMBER: _ClassVar[int]
    DEVID_FIELD_NUMBER: _ClassVar[int]
    SENDID_FIELD_NUMBER: _ClassVar[int]
    MSGTYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REFMESSAGEID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SENDREPLY_FIELD_NUMBER: _ClassVar[int]
    RECVREPLY_FIELD_NUMBER: _ClassVar[int]
    READREPLY_FIELD_NUMBER: _ClassVar[int]
    ENCTYPE_FIELD_NUMBER: _ClassVar[int]
    CHATTYPE_FIELD_NUMBER: _ClassVar[int]
    SUBMSGTYPE_FIELD_NUMBER: _ClassVar[int]
    KEYPRINT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    msgId: int
    userId: int
    fromId: int
    toId: int
    tm: int
    devId: str
    sendId: str
    msgType: ChatMsgType
    data: bytes
    priority: MsgPriority
    refMessageId: int
    status: ChatMsgStatus
    sendReply: int
    recvReply: int
    readReply: int
    encType: EncryptType
    chatType: ChatType
    subMsgType: int
    keyPrint: int
    params: _containers.ScalarMap[str, str]
    def __init__(self, msgId: _Optional[int] = ..., userId: _Optional[int] = ..., fromId: _Optional[int] = ..., toId: _Optional[int] = ..., tm: _Optional[int] = ..., devId: _Optional[str] = ..., sendId: _Optional[str] = ..., msgType: _Optional[_Union[ChatMsgType, str]] = ..., data: _Optional[bytes] = ..., priority: _Optional[_Union[MsgPriority, str]] = ..., refMessageId: _Optional[int] = ..., status: _Optional[_Union[ChatMsgStatus, str]] = ..., sendReply: _Optional[int] = ..., recvReply: _Optional[int] = ..., readReply: _Optional[int] = ..., encType: _Optional[_Union[EncryptType, str]] = ..., chatType: _Optional[_Union[ChatType, str]] = ..., subMsgType: _Optional[int] = ..., keyPrint: _Optional[int] = ..., params: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("at", "actor", "chat", "to", "group", "options", "session", "scheduled", "user", "contact", "block", "group_info", "member", "recalled", "receipt", "read", "inbox", "push", "ledger", "limits", "erased", "push_token", "partitions", "trimmed", "traces")
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    GROUP_INFO_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ERASED_FIELD_NUMBER: _ClassVar[int]
    PUSH_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    at: int
    actor: int
    chat: bytes
    to: int
    group: int
    options: int
    session: int
    scheduled: ScheduledSend
    user: UserChanged
    contact: ContactChanged
    block: BlockChanged
    group_info: GroupChanged
    member: MemberChanged
    recalled: Recalled
    receipt: Receipt
    read: ReadThrough
    inbox: InboxOpened
    push: Push
    ledger: Ledger
    limits: LimitsChanged
    erased: UserErased
    push_token: PushTokenChanged
    partitions: PartitionsChanged
    trimmed: HistoryTrimmed
    traces: Traces
    def __init__(self, at: _Optional[int] = ..., actor: _Optional[int] = ..., chat: _Optional[bytes] = ..., to: _Optional[int] = ..., group: _Optional[int] = ..., options: _Optional[int] = ..., session: _Optional[int] = ..., scheduled: _Optional[_Union[ScheduledSend, _Mapping]] = ..., user: _Optional[_Union[UserChanged, _Mapping]] = ..., contact: _Optional[_Union[ContactChanged, _Mapping]] = ..., block: _Optional[_Union[BlockChanged, _Mapping]] = ..., group_info: _Optional[_Union[GroupChanged, _Mapping]] = ..., member: _Optional[_Union[MemberChanged, _Mapping]] = ..., recalled: _Optional[_Union[Recalled, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., read: _Optional[_Union[ReadThrough, _Mapping]] = ..., inbox: _Optional[_Union[InboxOpened, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., ledger: _Optional[_Union[Ledger, _Mapping]] = ..., limits: _Optional[_Union[LimitsChanged, _Mapping]] = ..., erased: _Optional[_Union[UserErased, _Mapping]] = ..., push_token: _Optional[_Union[PushTokenChanged, _Mapping]] = ..., partitions: _Optional[_Union[PartitionsChanged, _Mapping]] = ..., trimmed: _Optional[_Union[HistoryTrimmed, _Mapping]] = ..., traces: _Optional[_Union[Traces, _Mapping]] = ...) -> None: ...

class ScheduledSend(_message.Message):
    __slots__ = ("is_exempt", "fired")
    IS_EXEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    is_exempt: bool
    fired: int
    def __init__(self, is_exempt: _Optional[bool] = ..., fired: _Optional[int] = ...) -> None: ...

class UserChanged(_message.Message):
    __slots__ = ("user", "public_id", "name", "avatar", "fields", "is_banned")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    USER_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AVATAR_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    IS_BANNED_FIELD_NUMBER: _ClassVar[int]
    user: int
    public_id: str
    name: str
    avatar: str
    fields: _containers.ScalarMap[str, str]
    is_banned: bool
    def __init__(self, user: _Optional[int] = ..., public_id: _Optional[str] = ..., name: _Optional[str] = ..., avatar: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ..., is_banned: _Optional[bool] = ...) -> None: ...

class ContactChanged(_message.Message):
    __slots__ = ("user", "peer", "is_linked")
    USER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    IS_LINKED_FIELD_NUMBER: _ClassVar[int]
    user: int
    peer: int
    is_linked: bool
    def __init__(self, user: _Optional[int] = ..., peer: _Optional[int] = ..., is_linked: _Optional[bool] = ...) -> None: ...

class BlockChanged(_message.Message):
    __slots__ = ("user", "peer", "is_blocked")
    USER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    IS_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    user: int
    peer: int
    is_blocked: bool
    def __init__(self, user: _Optional[int] = ..., peer: _Optional[int] = ..., is_blocked: _Optional[bool] = ...) -> None: ...

class GroupChanged(_message.Message):
    __slots__ = ("group", "public_id", "name", "avatar", "owner", "needs_approval", "is_large", "members", "fields", "history")
    class History(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNCHANGED: _ClassVar[GroupChanged.History]
        ALL: _ClassVar[GroupChanged.History]
        SINCE_JOIN: _ClassVar[GroupChanged.History]
    UNCHANGED: GroupChanged.History
    ALL: GroupChanged.History
    SINCE_JOIN: GroupChanged.History
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AVATAR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NEEDS_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    IS_LARGE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    group: int
    public_id: str
    name: str
    avatar: str
    owner: int
    needs_approval: bool
    is_large: bool
    members: _containers.RepeatedScalarFieldContainer[int]
    fields: _containers.ScalarMap[str, str]
    history: GroupChanged.History
    def __init__(self, group: _Optional[int] = ..., public_id: _Optional[str] = ..., name: _Optional[str] = ..., avatar: _Optional[str] = ..., owner: _Optional[int] = ..., needs_approval: _Optional[bool] = ..., is_large: _Optional[bool] = ..., members: _Optional[_Iterable[int]] = ..., fields: _Optional[_Mapping[str, str]] = ..., history: _Optional[_Union[GroupChanged.History, str]] = ...) -> None: ...

class MemberChanged(_message.Message):
    __slots__ = ("group", "user", "op")
    class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        JOIN: _ClassVar[MemberChanged.Op]
        QUIT: _ClassVar[MemberChanged.Op]
        REQUEST: _ClassVar[MemberChanged.Op]
        REFUSE: _ClassVar[MemberChanged.Op]
        MUTE: _ClassVar[MemberChanged.Op]
        UNMUTE: _ClassVar[MemberChanged.Op]
        ADMIN: _ClassVar[MemberChanged.Op]
        MEMBER: _ClassVar[MemberChanged.Op]
        TRANSFER: _ClassVar[MemberChanged.Op]
        INVITE: _ClassVar[MemberChanged.Op]
    JOIN: MemberChanged.Op
    QUIT: MemberChanged.Op
    REQUEST: MemberChanged.Op
    REFUSE: MemberChanged.Op
    MUTE: MemberChanged.Op
    UNMUTE: MemberChanged.Op
    ADMIN: MemberChanged.Op
    MEMBER: MemberChanged.Op
    TRANSFER: MemberChanged.Op
    INVITE: MemberChanged.Op
    GROUP_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    group: int
    user: int
    op: MemberChanged.Op
    def __init__(self, group: _Optional[int] = ..., user: _Optional[int] = ..., op: _Optional[_Union[MemberChanged.Op, str]] = ...) -> None: ...

class Recalled(_message.Message):
    __slots__ = ("message_id", "to", "group")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    message_id: int
    to: int
    group: int
    def __init__(self, message_id: _Optional[int] = ..., to: _Optional[int] = ..., group: _Optional[int] = ..., **kwargs) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("peer", "message_ids", "is_delivered", "is_read")
    FROM_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    IS_READ_FIELD_NUMBER: _ClassVar[int]
    peer: int
    message_ids: _containers.RepeatedScalarFieldContainer[int]
    is_delivered: bool
    is_read: bool
    def __init__(self, peer: _Optional[int] = ..., message_ids: _Optional[_Iterable[int]] = ..., is_delivered: _Optional[bool] = ..., is_read: _Optional[bool] = ..., **kwargs) -> None: ...

class ReadThrough(_message.Message):
    __slots__ = ("user", "peer", "group", "through")
    USER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    user: int
    peer: int
    group: int
    through: int
    def __init__(self, user: _Optional[int] = ..., peer: _Optional[int] = ..., group: _Optional[int] = ..., through: _Optional[int] = ...) -> None: ...

class InboxOpened(_message.Message):
    __slots__ = ("user", "platform")
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    user: int
    platform: str
    def __init__(self, user: _Optional[int] = ..., platform: _Optional[str] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("users", "platforms", "without_platforms", "exclusive", "opened")
    class ExclusiveEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: PushTo
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[PushTo, _Mapping]] = ...) -> None: ...
    USERS_FIELD_NUMBER: _ClassVar[int]
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedScalarFieldContainer[int]
    platforms: _containers.RepeatedScalarFieldContainer[str]
    without_platforms: _containers.RepeatedScalarFieldContainer[str]
    exclusive: _containers.MessageMap[int, PushTo]
    opened: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, users: _Optional[_Iterable[int]] = ..., platforms: _Optional[_Iterable[str]] = ..., without_platforms: _Optional[_Iterable[str]] = ..., exclusive: _Optional[_Mapping[int, PushTo]] = ..., opened: _Optional[_Iterable[str]] = ...) -> None: ...

class PushTo(_message.Message):
    __slots__ = ("platforms", "without_platforms", "has_options", "options")
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    HAS_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    platforms: _containers.RepeatedScalarFieldContainer[str]
    without_platforms: _containers.RepeatedScalarFieldContainer[str]
    has_options: bool
    options: int
    def __init__(self, platforms: _Optional[_Iterable[str]] = ..., without_platforms: _Optional[_Iterable[str]] = ..., has_options: _Optional[bool] = ..., options: _Optional[int] = ...) -> None: ...

class UserErased(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: int
    def __init__(self, user: _Optional[int] = ...) -> None: ...

class PushTokenChanged(_message.Message):
    __slots__ = ("user", "platform", "device", "provider", "token", "topic", "is_registered")
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    user: int
    platform: str
    device: str
    provider: str
    token: str
    topic: str
    is_registered: bool
    def __init__(self, user: _Optional[int] = ..., platform: _Optional[str] = ..., device: _Optional[str] = ..., provider: _Optional[str] = ..., token: _Optional[str] = ..., topic: _Optional[str] = ..., is_registered: _Optional[bool] = ...) -> None: ...

class PartitionsChanged(_message.Message):
    __slots__ = ("role", "count")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    role: str
    count: int
    def __init__(self, role: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class HistoryTrimmed(_message.Message):
    __slots__ = ("through", "users", "groups", "keys")
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    through: int
    users: _containers.RepeatedScalarFieldContainer[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, through: _Optional[int] = ..., users: _Optional[_Iterable[int]] = ..., groups: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LimitsChanged(_message.Message):
    __slots__ = ("offline_max", "offline_max_by_platform")
    class OfflineMaxByPlatformEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OFFLINE_MAX_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_MAX_BY_PLATFORM_FIELD_NUMBER: _ClassVar[int]
    offline_max: int
    offline_max_by_platform: _containers.ScalarMap[str, int]
    def __init__(self, offline_max: _Optional[int] = ..., offline_max_by_platform: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Ledger(_message.Message):
    __slots__ = ("platforms", "handed", "acked", "resent", "expired", "dead", "gateways")
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    HANDED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    RESENT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    platforms: _containers.RepeatedScalarFieldContainer[str]
    handed: Rows
    acked: Rows
    resent: Rows
    expired: Rows
    dead: Rows
    gateways: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, platforms: _Optional[_Iterable[str]] = ..., handed: _Optional[_Union[Rows, _Mapping]] = ..., acked: _Optional[_Union[Rows, _Mapping]] = ..., resent: _Optional[_Union[Rows, _Mapping]] = ..., expired: _Optional[_Union[Rows, _Mapping]] = ..., dead: _Optional[_Union[Rows, _Mapping]] = ..., gateways: _Optional[_Iterable[str]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("user", "platform", "first", "through", "message", "gateway", "waited")
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    user: _containers.RepeatedScalarFieldContainer[int]
    platform: _containers.RepeatedScalarFieldContainer[int]
    first: _containers.RepeatedScalarFieldContainer[int]
    through: _containers.RepeatedScalarFieldContainer[int]
    message: _containers.RepeatedScalarFieldContainer[int]
    gateway: _containers.RepeatedScalarFieldContainer[int]
    waited: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, user: _Optional[_Iterable[int]] = ..., platform: _Optional[_Iterable[int]] = ..., first: _Optional[_Iterable[int]] = ..., through: _Optional[_Iterable[int]] = ..., message: _Optional[_Iterable[int]] = ..., gateway: _Optional[_Iterable[int]] = ..., waited: _Optional[_Iterable[bool]] = ...) -> None: ...

class Traces(_message.Message):
    __slots__ = ("node", "flushes", "timings", "sessions", "rooms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FLUSHES_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    node: int
    flushes: Flushes
    timings: Timings
    sessions: SessionRows
    rooms: RoomRows
    def __init__(self, node: _Optional[int] = ..., flushes: _Optional[_Union[Flushes, _Mapping]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., sessions: _Optional[_Union[SessionRows, _Mapping]] = ..., rooms: _Optional[_Union[RoomRows, _Mapping]] = ...) -> None: ...

class Flushes(_message.Message):
    __slots__ = ("event", "at", "applied_us", "after")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    APPLIED_US_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    event: _containers.RepeatedScalarFieldContainer[int]
    at: _containers.RepeatedScalarFieldContainer[int]
    applied_us: _containers.RepeatedScalarFieldContainer[int]
    after: int
    def __init__(self, event: _Optional[_Iterable[int]] = ..., at: _Optional[_Iterable[int]] = ..., applied_us: _Optional[_Iterable[int]] = ..., after: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("links", "hop", "link", "us")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    US_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedScalarFieldContainer[str]
    hop: _containers.RepeatedScalarFieldContainer[int]
    link: _containers.RepeatedScalarFieldContainer[int]
    us: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, links: _Optional[_Iterable[str]] = ..., hop: _Optional[_Iterable[int]] = ..., link: _Optional[_Iterable[int]] = ..., us: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionRows(_message.Message):
    __slots__ = ("platforms", "gateways", "session", "user", "platform", "gateway", "at", "is_open", "now", "peak")
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    platforms: _containers.RepeatedScalarFieldContainer[str]
    gateways: _containers.RepeatedScalarFieldContainer[str]
    session: _containers.RepeatedScalarFieldContainer[int]
    user: _containers.RepeatedScalarFieldContainer[int]
    platform: _containers.RepeatedScalarFieldContainer[int]
    gateway: _containers.RepeatedScalarFieldContainer[int]
    at: _containers.RepeatedScalarFieldContainer[int]
    is_open: _containers.RepeatedScalarFieldContainer[bool]
    now: int
    peak: int
    def __init__(self, platforms: _Optional[_Iterable[str]] = ..., gateways: _Optional[_Iterable[str]] = ..., session: _Optional[_Iterable[int]] = ..., user: _Optional[_Iterable[int]] = ..., platform: _Optional[_Iterable[int]] = ..., gateway: _Optional[_Iterable[int]] = ..., at: _Optional[_Iterable[int]] = ..., is_open: _Optional[_Iterable[bool]] = ..., now: _Optional[int] = ..., peak: _Optional[int] = ...) -> None: ...

class RoomRows(_message.Message):
    __slots__ = ("since", "room", "messages", "deliveries", "bytes", "members", "users")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    since: int
    room: _containers.RepeatedScalarFieldContainer[str]
    messages: _containers.RepeatedScalarFieldContainer[int]
    deliveries: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    users: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, since: _Optional[int] = ..., room: _Optional[_Iterable[str]] = ..., messages: _Optional[_Iterable[int]] = ..., deliveries: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., members: _Optional[_Iterable[int]] = ..., users: _Optional[_Iterable[int]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("attempt", "last_attempt_at", "reason", "at", "notify", "kick", "flush", "undecodable", "refused", "replayed")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_ATTEMPT_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    KICK_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    UNDECODABLE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    last_attempt_at: int
    reason: str
    at: int
    notify: Notify
    kick: KickSession
    flush: FlushInbox
    undecodable: Undecodable
    refused: RefusedSchedule
    replayed: Replayed
    def __init__(self, attempt: _Optional[int] = ..., last_attempt_at: _Optional[int] = ..., reason: _Optional[str] = ..., at: _Optional[int] = ..., notify: _Optional[_Union[Notify, _Mapping]] = ..., kick: _Optional[_Union[KickSession, _Mapping]] = ..., flush: _Optional[_Union[FlushInbox, _Mapping]] = ..., undecodable: _Optional[_Union[Undecodable, _Mapping]] = ..., refused: _Optional[_Union[RefusedSchedule, _Mapping]] = ..., replayed: _Optional[_Union[Replayed, _Mapping]] = ...) -> None: ...

class Notify(_message.Message):
    __slots__ = ("user", "platforms", "message_id", "conversation", "unread", "text", "devices")
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    user: int
    platforms: _containers.RepeatedScalarFieldContainer[str]
    message_id: int
    conversation: str
    unread: int
    text: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, user: _Optional[int] = ..., platforms: _Optional[_Iterable[str]] = ..., message_id: _Optional[int] = ..., conversation: _Optional[str] = ..., unread: _Optional[int] = ..., text: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class KickSession(_message.Message):
    __slots__ = ("user", "session", "reason")
    USER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    user: int
    session: int
    reason: str
    def __init__(self, user: _Optional[int] = ..., session: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class FlushInbox(_message.Message):
    __slots__ = ("user", "platform")
    USER_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    user: int
    platform: str
    def __init__(self, user: _Optional[int] = ..., platform: _Optional[str] = ...) -> None: ...

class Undecodable(_message.Message):
    __slots__ = ("event_id", "payload")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    payload: bytes
    def __init__(self, event_id: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class RefusedSchedule(_message.Message):
    __slots__ = ("record", "code")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    code: str
    def __init__(self, record: _Optional[bytes] = ..., code: _Optional[str] = ...) -> None: ...

class Replayed(_message.Message):
    __slots__ = ("event_id",)
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    def __init__(self, event_id: _Optional[int] = ...) -> None: ...
