-- Ends one holder's lease by force, tells its manager, and wakes those who wait.
-- KEYS     those of the claim
-- ARGV[1]  the token of the holder that was seen
-- ARGV[2]  the claim's channel
-- ARGV[3]  the channel of revocations
-- ARGV[4]  the claim's kind: 'x' where there are no readers, 's' where there may be some, 'p'
-- Returns 1, or 0 if this token no longer holds it.
local token, channel, revocations = arg(), arg(), arg()
local c = claim()
local free = true

local deleted
if c.kind == 'p' then
  if ends(c.key, token) <= now then return 0 end
  deleted = redis.pcall('ZREM', c.key, token)
  if not is_error(deleted) then settle(c.key) end
elseif c.kind == 's' and reads(c, token) then
  deleted = redis.pcall('ZREM', c.set, token)
  if not is_error(deleted) then free = not settle_readers(c) end
else
  local value = redis.pcall('GET', c.key)
  -- A marker with readers behind it is no holder.
  if value ~= token or c.kind == 's' and is_marker(value) and first(c.set) then return 0 end
  deleted = redis.pcall('DEL', c.key)
end
if is_error(deleted) then return deleted end
redis.pcall('PUBLISH', revocations, c.key .. '\n' .. token)
if free then wake(channel) end
return 1
