-- Extends one exclusive claim; never shortens it.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt in a queue: the hash beside it
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  1 if it took the news that its turn has come for its grant: then this confirms
-- Returns 1, or 0 if the key is no longer this token's.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value ~= ARGV[1] then return 0 end
if KEYS[2] then
  if ARGV[3] == '1' then
    redis.pcall('HDEL', KEYS[2], ARGV[1])
  elseif redis.pcall('HEXISTS', KEYS[2], ARGV[1]) == 1 then
    -- Kept for it, but not confirmed: that was not granted.
    return 0
  end
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if type(set) == 'table' then return set end
end
return 1
