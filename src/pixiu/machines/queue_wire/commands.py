"""The numbers and texts of the queue's protocol, each written once.

Server and clients import them from here. The texts of smss are quoted as they are on the wire, slips
included, because tools may match on them; the extensions' texts follow below them. docs/protocol-queue.md
is the reference.
"""

from typing import Final

EXTENSION_VERSION: Final = 1

REQUEST_HEADER_BYTES: Final = 20
RESPONSE_HEADER_BYTES: Final = 10

# Commands of smss.

SUB: Final = 0
PUB: Final = 1
CREATE_TOPIC: Final = 2
DELETE_TOPIC: Final = 3
DELAY: Final = 16
ALIVE: Final = 17
REPLICA: Final = 64
TOPIC_INFO: Final = 65
VALID_LIST: Final = 99
LIST: Final = 100
DELAY_APPLY: Final = 101
"""Only seen inside the journal and the replica stream."""

# Commands of the extensions: all carry their part's size at header byte 3.

EXTENSION_FIRST: Final = 128
EXTENSION_LAST: Final = 159

HELLO: Final = 128
APPEND: Final = 129
SUBSCRIBE: Final = 130
POSITIONS: Final = 131
SET_POSITION: Final = 132
DELAYS: Final = 133
CANCEL_DELAY: Final = 134
FOLLOW: Final = 135
PROMOTE: Final = 136
STATUS: Final = 137
AUTHORIZE: Final = 138
SNAPSHOT: Final = 139
SNAPSHOT_STORES: Final = b"stores"
"""As the name of a Snapshot request: the messaging stores, too."""
FLUSH: Final = 140
FEED: Final = 141
# 142 to 144 belonged to commands that were removed. They stay reserved.
JOIN: Final = 145
CHALLENGE: Final = 146
PROVE: Final = 147

# Response codes.

CODE_DONE: Final = 200
CODE_ALIVE: Final = 201
CODE_ENDED: Final = 255
CODE_REFUSED: Final = 400

# Request flags.

FLAG_WANT_EVENT_ID: Final = 1
"""Pub, CreateTopic, DeleteTopic and Delay, header byte 7: answer with the event id in the free bytes."""
FLAG_TAKE_OVER: Final = 1
"""Subscribe: wait until the name is free, instead of being refused."""
FLAG_REMEMBER: Final = 2
"""Subscribe: each ack moves the stored position of (topic, subscriber)."""

START_AFTER: Final = 0
START_NOW: Final = 1
START_STORED: Final = 2
START_TIME: Final = 3

ACK_CONTINUE: Final = b"\x00\x00"
ACK_END: Final = b"\x01\x00"

# Kinds of frames in the streams that followers read.

FOLLOW_FRAMES: Final = 1
FOLLOW_TRUNCATE: Final = 2
FOLLOW_TOO_FAR: Final = 3
FOLLOW_STATE: Final = 4
FOLLOW_STAMPED: Final = 16
"""Added to the kind of a frame that begins with the leader's clock, for followers that asked for it."""

FOLLOW_FLAG_STAMPS: Final = 1
"""Follow: send stamps; they are echoed in the progress reports."""

SNAPSHOT_OPEN: Final = 1
SNAPSHOT_PIECE: Final = 2
SNAPSHOT_CLOSE: Final = 3
SNAPSHOT_END: Final = 4

# Limits.

TOPIC_NAME_BYTES_MAX: Final = 128
TRACE_ID_BYTES_MAX: Final = 255
BATCH_MAX: Final = 255
MESSAGE_HEADER_BYTES: Final = 8
DELAY_MS_MIN: Final = 1000
LIFETIME_MS_MIN: Final = 10_000
ACK_TIMEOUT_DEFAULT_MS: Final = 3000
RESERVED_PREFIX: Final = b"pixiu."

# Headers that Append puts in front of a message's own.

HEADER_MESSAGE_ID: Final = b"pixiu.id"
HEADER_KEY: Final = b"pixiu.key"

# Error texts of smss.

DONT_SUPPORT_ACTION: Final = "don't support action"
BAD_TOPIC_NAME: Final = "topic name MUST be less than 128 char and NOT contains space/enter/tab"
BAD_EXPIRY: Final = "expire MUST more than 10s"
TOPIC_EXIST: Final = "topic exist"
LEADER_MANAGES_TOPICS: Final = "just master can manage topic"
LEADER_PUBLISHES: Final = "just master can pub message"
TOPIC_NOT_EXIST: Final = "topic not exist"
TOPIC_NAME_REQUIRED: Final = "topic name is required"
PAYLOAD_TOO_SMALL: Final = "invalid request, payload size must be more than 8"
BAD_PUB_PAYLOAD: Final = "invalid pub payload"
BAD_DELAY: Final = "invalid delay request"
DELAY_TOO_SHORT: Final = "delay time must be more than 1 second"
SUBSCRIBER_EXIST_SUFFIX: Final = " regiester exist"
EVENT_ID_NOT_FOUND: Final = "can't find event id"
EVENT_ID_FILE_GONE: Final = "can't find event id,because file not exist"
EVENT_ID_EXPIRED: Final = "found event id,but expired"
EVENT_ID_BEYOND: Final = "EOF"
BAD_REPLICA_EVENT_ID: Final = "invalid replica eventId"
DELETE_FILES_FAILED: Final = "delete topic file failed"

# Error texts of the extensions.

TOPIC_RESERVED: Final = "topic is reserved"
TOPIC_STAYS: Final = "topic is Pixiu's own and cannot be deleted"
BEHIND: Final = "behind"
READING_BACK: Final = "the keys of earlier messages are being read; try again"
DELAYED_NOT_EXIST: Final = "delayed message not exist"
WRONG_KEY: Final = "wrong key"
KEY_NEEDED: Final = "the key of the cluster is needed for this"
"""Follow, Snapshot, Replica, Promote and Join on a connection that has shown no key."""
FENCED_PREFIX: Final = "fenced, epoch "
REQUEST_INCOMPLETE: Final = "request is incomplete"
PAYLOAD_TOO_LARGE: Final = "payload is too large"
TOO_MANY_MESSAGES: Final = "too many messages in one publish, at most 65536"
BAD_EXTENSION_PART: Final = "invalid request"
LEADER_DECIDES: Final = "just the leader can do this"
"""The extensions' counterpart of "just master …": Append, SetPosition, CancelDelay on a follower."""
DISK_FULL: Final = "disk is full"
OVERLOADED: Final = "overloaded, try again later"
LOG_ENDS_BEFORE: Final = "the log ends before this event"
LOG_BEGINS_BEHIND: Final = "the journal begins behind this event"
NOT_IN_SYNC: Final = "not enough followers in sync"
LEASE_OVER: Final = "the lease was not renewed in time"
STOPPING: Final = "the queue is stopping"
IN_KAFKA: Final = "the log of this cluster is in Kafka"
"""The queue port of a shard whose log is in Kafka begins its refusals with this."""
FATE_UNKNOWN: Final = "whether this was kept is unknown"
"""Ends the text for writes that a leader had appended, and could not commit before it had to stop."""
