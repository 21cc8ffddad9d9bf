-- Grants all claims to a token, or none.
-- KEYS     the key of each claim
-- ARGV[1]  the token
-- ARGV[2…] the TTL of each claim in milliseconds
-- Returns 0, or {which claim was denied, its value, its time left in milliseconds}.
local token = ARGV[1]

-- One claim on a free key, by far the most common case: look and write are one command.
if #KEYS == 1 then
  local set = redis.pcall('SET', KEYS[1], token, 'NX', 'PX', ARGV[2])
  if set and set.ok then return 0 end
  if set and set.err then return set end
end

local mine = {}
for i, key in ipairs(KEYS) do
  -- `pcall`, so that a key of another type is reported with its own error code on every server version.
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return value end
  if value and value ~= token then
    return {i, value, redis.call('PTTL', key)}
  end
  mine[i] = value
end

-- Everything was looked at; from here on nothing can fail but the first write.
for i, key in ipairs(KEYS) do
  if not mine[i] then
    local set = redis.pcall('SET', key, token, 'PX', ARGV[i + 1])
    if set.err then return set end
  end
end
return 0
