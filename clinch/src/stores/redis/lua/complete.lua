-- Finishes one exclusive claim: leaves a record in its place, and wakes those who wait.
-- KEYS[1]  the key
-- ARGV[1]  the token
-- ARGV[2]  the key's channel; empty where nobody waits for the key
-- ARGV[3]  the record
-- ARGV[4]  how long the record is kept, in milliseconds; 0: for what is left of the lease
-- ARGV[5]  the TTL of the lease in milliseconds
-- Returns how many subscribers were woken, or -1 if the key was not this token's any more.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
local mark = 'done:' .. ARGV[1] .. '\n'
if value ~= ARGV[1] then
  -- Sent again: what it has left stays as it is.
  if value and string.sub(value, 1, #mark) == mark then return 0 end
  return -1
end
local ttl = ARGV[4]
-- Nothing stays for ever: a lease from which somebody else took its expiry has one again.
if ttl == '0' and redis.call('PTTL', KEYS[1]) < 0 then ttl = ARGV[5] end
local set
if ttl == '0' then
  set = redis.pcall('SET', KEYS[1], mark .. ARGV[3], 'KEEPTTL')
else
  set = redis.pcall('SET', KEYS[1], mark .. ARGV[3], 'PX', ttl)
end
if set.err then return set end
if ARGV[2] == '' then return 0 end
-- `pcall`: without the right to publish, waiters poll.
local receivers = redis.pcall('PUBLISH', ARGV[2], '')
return type(receivers) == 'number' and receivers or 0
