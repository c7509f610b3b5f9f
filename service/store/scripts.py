"""Lua scripts, each with the Python function that runs it."""

import redis

_DELETE_WITH_INDEXES = """
local indexes = redis.call('HGET', KEYS[1], 'indexes')
if not indexes then
  return 0
end
for _, index in ipairs(cjson.decode(indexes)) do
  redis.call('ZREM', index, ARGV[1])
end
return redis.call('DEL', KEYS[1])
"""


def delete_with_indexes(client: redis.Redis, key: str, *, member: str) -> bool:
    """Delete a hash and its member of every index it names, at once; tell whether it was there."""
    script = client.register_script(_DELETE_WITH_INDEXES)
    return bool(script(keys=[key], args=[member]))
