-- Grants one exclusive claim without a fence, by far the most common attempt: on a free key look and write are one
-- command.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt that waits: the note on the writer that new readers let go first
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  for an attempt that waits: how long its note is good, in milliseconds
-- Returns 0, or {the key's value, its time left in milliseconds}.
local set = redis.pcall('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if set and set.err then return set end
if set then
  -- Whichever writer the note is of, it has done its work.
  if KEYS[2] then redis.pcall('DEL', KEYS[2]) end
  return 0
end
-- `pcall`, so that a key of another type is reported with its own error code on every server version.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then return 0 end
-- Without memory there is no note, and the denial stands all the same.
if KEYS[2] and value and string.sub(value, 1, 7) == 'shared:' then
  redis.pcall('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
end
return {value or '', redis.call('PTTL', KEYS[1])}
