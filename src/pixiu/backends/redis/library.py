"""What runs inside Redis: one library of functions, loaded under a name with its version.

A commit is one call: it sees that the caller is the owner and that nothing was lost, notes that it begins, applies
every command, and notes its number. Redis runs it whole or not at all, unless a command fails in the middle: what was
begun is then found by that note when the commit is told again. Servers without functions (before 7.0) get each one as a
script.

Every command of a commit says what is, never what to add: applied twice it changes nothing.
"""

__all__ = ["FUNCTIONS", "LIBRARY", "NAME", "SCRIPTS"]

NAME = "pixiu_4"
"""The library; its number rises with every change."""

_APPLY = """
local special = {}

-- An inbox gets another name, once.
special['MOVE'] = function(from, to)
  if redis.call('EXISTS', from) == 1 then redis.call('RENAME', from, to) end
end

-- The newest messages of a group: what is there already is not put twice. Ids are padded, so they compare as text.
special['RECENT'] = function(list, state, id, body, bound)
  local newest = redis.call('HGET', state, 'newest')
  if newest and newest >= id then return end
  redis.call('LPUSH', list, body)
  redis.call('LTRIM', list, 0, bound - 1)
  redis.call('HSET', state, 'newest', id)
end

-- Streams. Redis gives their ids, so what this commit has written before is looked for at the end of a stream: entries
-- of messages that are not older than the first one of the commit (floor). One that was never begun has written none.
local tails, said, is_again = {}, {}, true

local function message_of(entry)
  local fields = entry[2]
  for at = 1, #fields, 2 do
    if fields[at] == 'id' then return fields[at + 1] end
  end
end

local function is_less(a, b)
  return #a < #b or (#a == #b and a < b)
end

-- A number that only rises.
special['RAISE'] = function(key, field, value)
  local before = redis.call('HGET', key, field)
  if not before or is_less(before, value) then redis.call('HSET', key, field, value) end
end

-- Calls with every entry from the newest on, until it says true.
local function backward(stream, count, call)
  local last = '+'
  while true do
    local entries = redis.call('XREVRANGE', stream, last, '-', 'COUNT', count)
    for _, entry in ipairs(entries) do
      if call(entry) then return end
    end
    if #entries < count then return end
    last, count = '(' .. entries[#entries][1], 100
  end
end

local function tail_of(stream, floor)
  local tail = tails[stream]
  if not tail then
    tail = {}
    if is_again then
      backward(stream, 1, function(entry)
        local id = message_of(entry)
        if not id then return false end
        if is_less(id, floor) then return true end
        tail[id] = entry[1]
      end)
    end
    tails[stream] = tail
  end
  return tail
end

-- A body.
special['SAY'] = function(stream, floor, bound, id, ...)
  local tail = tail_of(stream, floor)
  if not tail[id] then tail[id] = redis.call('XADD', stream, 'MAXLEN', '~', bound, '*', 'id', id, ...) end
  local at = #said
  said[at + 1], said[at + 2], said[at + 3] = stream, id, tail[id]
end

-- A pointer to a body; in a cluster that is elsewhere, and the caller says where.
special['POINT'] = function(stream, floor, bound, id, body, at)
  local tail = tail_of(stream, floor)
  if tail[id] then return end
  at = at or tail_of(body, floor)[id] or ''
  tail[id] = redis.call('XADD', stream, 'MAXLEN', '~', bound, '*', 'FW', body, 'id', id, 'entry', at)
end

-- Both at once, where all are on one server.
special['TELL'] = function(stream, pointer, floor, bound, id, ...)
  special['SAY'](stream, floor, bound, id, ...)
  special['POINT'](pointer, floor, bound, id, stream)
end

-- Pointers of many to one body, where all are on one server.
special['POINTS'] = function(body, floor, bound, id, ...)
  for _, stream in ipairs({...}) do special['POINT'](stream, floor, bound, id, body) end
end

special['UNSAY'] = function(stream, id)
  backward(stream, 100, function(entry)
    local found = message_of(entry)
    if found == id then redis.call('XDEL', stream, entry[1]) end
    return found and is_less(found, id)
  end)
end

-- What a user has said; notices hold numbers only, and stay.
special['PURGE'] = function(stream, user)
  local gone = {}
  backward(stream, 100, function(entry)
    local fields, is_theirs, is_notice = entry[2], false, false
    for at = 1, #fields, 2 do
      local name = fields[at]
      is_notice = is_notice or name == 'action'
      is_theirs = is_theirs or ((name == 'uid' or name == 'user') and fields[at + 1] == user)
    end
    if is_theirs and not is_notice then gone[#gone + 1] = entry[1] end
  end)
  for _, entry in ipairs(gone) do redis.call('XDEL', stream, entry) end
end

-- Only the owner writes, and only where its last commit is; or the one before, when this one is told again.
local function check(key, args)
  local owner = redis.call('HMGET', key, 'token', 'commit')
  if owner[1] and owner[1] ~= args[1] then return 'TAKEN' end
  local number = owner[2] or '0'
  if not owner[1] or (number ~= args[2] and number ~= args[3]) then return 'LOST' end
end

-- Commands come packed: a thousand arguments of a call cost both sides more than one that holds them all.
local function apply(packed, again)
  tails, said, is_again = {}, {}, again
  for _, command in ipairs(cmsgpack.unpack(packed)) do
    local own = special[command[1]]
    if own then own(unpack(command, 2)) else redis.call(unpack(command)) end
  end
end
"""

_BODIES = {
    # owner; node, token -> commit number, or who owns it
    "open": """
  local node = redis.call('HGET', keys[1], 'node')
  if node and node ~= args[1] then return {'OWNED', node} end
  redis.call('HSET', keys[1], 'node', args[1], 'token', args[2])
  return {'OK', redis.call('HGET', keys[1], 'commit') or '0'}
""",
    # owner; token, commit before, this commit, commands packed
    "commit": """
  local problem = check(keys[1], args)
  if problem then return problem end
  local begun = redis.call('HGET', keys[1], 'begun')
  redis.call('HSET', keys[1], 'begun', args[3])
  apply(args[4], begun == args[3])
  redis.call('HSET', keys[1], 'commit', args[3])
  return 'OK'
""",
    # owner; token, commit before, this commit, key, commands packed
    "redo": """
  local problem = check(keys[1], args)
  if problem then return problem end
  redis.call('SET', args[4], args[5])
  return 'OK'
""",
    # any key of the slot; commands packed -> of each body: stream, message, entry
    "apply": """
  apply(args[1], true)
  return said
""",
    # stream of actions; consumer group, answers, malformed, bound, then entry, is it malformed, count, fields …
    "finish": """
  local i, last, finished = 5, #args, 0
  while i <= last do
    local entry, is_malformed, count = args[i], args[i + 1] == '1', tonumber(args[i + 2])
    if redis.call('XACK', keys[1], args[1], entry) == 1 then
      redis.call('XADD', args[2], 'MAXLEN', '~', args[4], '*', unpack(args, i + 3, i + 2 + count))
      if is_malformed then
        local copy = {'entry', entry}
        local found = redis.call('XRANGE', keys[1], entry, entry)[1]
        for at = i + 5, i + 2 + count do copy[#copy + 1] = args[at] end
        if found then
          for at = 1, math.min(#found[2], 128) do copy[#copy + 1] = string.sub(found[2][at], 1, 4096) end
        end
        redis.call('XADD', args[3], 'MAXLEN', '~', args[4], '*', unpack(copy))
      end
      redis.call('XDEL', keys[1], entry)
      finished = finished + 1
    end
    i = i + 3 + count
  end
  return finished
""",
}

FUNCTIONS = tuple(_BODIES)

LIBRARY = (
    f"#!lua name={NAME}\n"
    + _APPLY
    + "".join(
        f"redis.register_function('{NAME}_{name}', function(keys, args)\n{body}end)\n" for name, body in _BODIES.items()
    )
)

SCRIPTS = {name: f"local keys, args = KEYS, ARGV\n{_APPLY}\n{body}" for name, body in _BODIES.items()}
