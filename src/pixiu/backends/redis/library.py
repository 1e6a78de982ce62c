"""What runs inside Redis: one library of functions, loaded under a name with its version.

A commit is one call: it sees that the caller is the owner and that nothing was lost, applies every command, and notes
its number. Redis runs it whole or not at all. Servers without functions (before 7.0) get each one as a script.

Every command of a commit says what is, never what to add: applied twice it changes nothing.
"""

__all__ = ["FUNCTIONS", "LIBRARY", "NAME", "SCRIPTS"]

NAME = "pixiu_2"
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

-- Only the owner writes, and only where its last commit is; or the one before, when this one is told again.
local function check(key, args)
  local owner = redis.call('HMGET', key, 'token', 'commit')
  if owner[1] and owner[1] ~= args[1] then return 'TAKEN' end
  local number = owner[2] or '0'
  if not owner[1] or (number ~= args[2] and number ~= args[3]) then return 'LOST' end
end

-- Commands come packed: a thousand arguments of a call cost both sides more than one that holds them all.
local function apply(packed)
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
  apply(args[4])
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
    # any key of the slot; commands packed
    "apply": """
  apply(args[1])
  return 'OK'
""",
    # room; session, version, user and gateway
    "enter": """
  local known = redis.call('HGET', keys[1], args[1])
  if known then
    local version = string.match(known, '^(%d+)')
    if #version > #args[2] or (#version == #args[2] and version > args[2]) then return 0 end
  end
  redis.call('HSET', keys[1], args[1], args[2] .. ' ' .. args[3])
  return 1
""",
    # room; session, version
    "leave": """
  local known = redis.call('HGET', keys[1], args[1])
  local version = args[2]
  if known then
    local has, rest = string.match(known, '^(%d+) (.*)$')
    local newer = #has > #version or (#has == #version and has > version)
    if newer and rest ~= '' then return 0 end
    if newer then version = has end
  end
  redis.call('HSET', keys[1], args[1], version .. ' ')
  return 1
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
