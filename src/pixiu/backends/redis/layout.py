"""The keys, as the seeds publish them; what they have no key for is below ``pixiu:``.

``%d`` is the number of a user, group or message. In the layout for clusters that number stands in braces, so all keys
of a user are in one slot, all of a group, and both of a message.

Where several have their stores in one database (the carriers of a cluster), each has a prefix before all of its keys.
It stands before the braces, so what is in one slot stays together; keys that all users share have it in their braces as
well, so those of several are not in one slot.

::

    key                            type    content
    u:<user>                       hash    name, avatar, more fields; pixiu:id, pixiu:at, pixiu:erased
    c:<user>                       zset    u:<peer> and g:<group>, by the time of adding or joining (ms)
    r:<user>                       zset    u:<peer> and g:<group>, by how many are unread
    pixiu:r:<user>                 hash    the same members: the event that touched the count last
    pixiu:b:<user>                 set     whom the user blocks
    pixiu:was:<user>               set     groups that the user has left
    gi:<group>                     hash    name, avatar, master, more fields; pixiu:… for the rest
    gm:<group>                     set     who is a member now
    pixiu:gm:<group>               hash    user: all stays (``>BBQqQQQ`` each)
    pixiu:gr:<group>               hash    user: time of asking to join
    msg/u:<user>/p:<platform>/oms  zset    message ids that wait, by the time of sending (seconds)
    pixiu:in:<user>                hash    platform: number, floor, latest, waiting, event id, oldest time
    pixiu:oms:<user>:<inbox>       zset    ``>QQqIQ`` message, event, time, options, session, by useq
    msg/om:<message>/m             string  body (MsgChat)
    msg/om:<message>/n             string  how many refer to it
    msg/u:<user>/ss                hash    session: <platform>-<gateway>
    pixiu:present                  set     users with sessions: what a start after a crash cleans up
    pixiu:room:<room>              hash    session: <user>-<gateway> of who listens in a room
    pixiu:rooms                    set     rooms with somebody in them
    s:<user>                       stream  what the user got, and pointers to what the user sent, or got in groups
    gs:<group>                     stream  what was said in a group
    bsgmsg_<group>                 list    the newest 1000 bodies, newest first
    pixiu:bsgmsg:<group>           hash    newest: message id; all: 1 if the oldest is the group's first
    pixiu:k:<user>                 hash    key of a send: ``>QQq`` message, event, time of what was accepted
    pixiu:id:u:<public id>         string  user
    pixiu:id:g:<public id>         string  group
    pixiu:push:<user>              string  JSON: platform, device, provider, token, topic, time, event of each phone
    pixiu:phone:<hash of a token>  string  user
    pixiu:users, pixiu:inboxes     zset    users as 16 hex digits, to be read in order
    pixiu:left                     zset    <group>:<user>, by the event of leaving
    pixiu:notes                    hash    what records leave behind for the appliers
    pixiu:meta                     hash    lane:<lane>, high:bodies, layout
    pixiu:owner                    hash    node, token, commit: who writes here, and how far
    g:all                          stream  actions, read by the consumer group g:group; the same in both layouts
    g:answers, g:malformed         stream  what became of them; ``{g:all}:answers`` and so on in a cluster
"""

from pixiu.backends.redis.address import Layout

__all__ = ["FILLING", "LAYOUT", "Keys", "group_member", "hex_of", "user_member"]

LAYOUT = 1
"""Rises with every change of what is written here: stores of another layout are made again from the log."""

FILLING = -1
"""In its place while stores are filled in bulk, and not all of them are there yet."""


_SEED_PATTERNS = (
    *(f"{name}[0-9{{]*" for name in ("u:", "c:", "r:", "s:", "gi:", "gm:", "gs:", "msg/u:", "msg/om:", "bsgmsg_")),
    "pixiu:*",
)


class Keys:
    """Patterns for the keys of one layout; ``prefix`` is text that means nothing to Redis or to formatting."""

    def __init__(self, layout: Layout, prefix: str = "") -> None:
        is_tagged = layout == "cluster"
        tag = prefix.rstrip(":") or "pixiu"

        def of(pattern: str) -> str:
            return prefix + (pattern.replace("%d", "{%d}", 1) if is_tagged else pattern)

        def single(name: str) -> str:
            return f"{prefix}pixiu:{{{tag}}}:{name}" if is_tagged else f"{prefix}pixiu:{name}"

        self.all_patterns = (f"{prefix}*",) if prefix else _SEED_PATTERNS
        """What every key matches, as Redis compares; keys of others do not, unless they look like ours."""

        self.user = of("u:%d")
        self.contacts = of("c:%d")
        self.unread = of("r:%d")
        self.unread_events = of("pixiu:r:%d")
        self.blocks = of("pixiu:b:%d")
        self.was_in = of("pixiu:was:%d")
        self.group = of("gi:%d")
        self.members = of("gm:%d")
        self.stays = of("pixiu:gm:%d")
        self.requests = of("pixiu:gr:%d")
        self.invitations = of("pixiu:gi:%d")
        self.waiting = of("msg/u:%d/p:%s/oms")
        self.inboxes = of("pixiu:in:%d")
        self.entries = of("pixiu:oms:%d:%d")
        self.body = of("msg/om:%d/m")
        self.references = of("msg/om:%d/n")
        self.sessions = of("msg/u:%d/ss")
        self.room = of("pixiu:room:%d")
        self.stream = of("s:%d")
        self.group_stream = of("gs:%d")
        self.recent = of("bsgmsg_%d")
        self.recent_state = of("pixiu:bsgmsg:%d")
        self.push_tokens = of("pixiu:push:%d")
        self.push_holder = prefix + "pixiu:phone:%s"
        self.user_id = prefix + "pixiu:id:u:%s"
        self.group_id = prefix + "pixiu:id:g:%s"
        self.send_keys = of("pixiu:k:%d")
        self.all_users = single("users")
        self.all_inboxes = single("inboxes")
        self.left = single("left")
        self.notes = single("notes")
        self.meta = single("meta")
        self.owner = single("owner")
        self.redo = single("redo")
        self.present = single("present")
        self.rooms = single("rooms")
        self.actions = "g:all"
        # Braces put them into the slot of the one above.
        self.answers = "{g:all}:answers" if is_tagged else "g:answers"
        self.malformed = "{g:all}:malformed" if is_tagged else "g:malformed"


def user_member(user: int) -> str:
    """A user among contacts and unread counts: users and groups may have the same numbers."""
    return f"u:{user}"


def group_member(group: int) -> str:
    """A group among contacts and unread counts."""
    return f"g:{group}"


def hex_of(user: int) -> str:
    """A number whose order as text is its order."""
    return f"{user:016x}"
