-- Gives back a lease that was asked for in the queue, or withdraws the attempt from it; a key that is free then is
-- kept for the first one in the queue. Deletes first, so that it works without memory too.
-- KEYS[1]  the key
-- KEYS[2]  the queue
-- KEYS[3]  the hash beside the queue
-- KEYS[4]  the note on who comes next, as `acquire.lua` writes it
-- ARGV[1]  the token
-- ARGV[2]  the key's channel
-- ARGV[3]  1 if it took the news that its turn has come for its grant
-- Returns how many heard that the key is kept for the next one, or -1 minus that if it was not this token's any more or never
-- granted. If it is kept for nobody: {1, or 0 in that case; how many subscribers of the key's channel were woken}.
local token, channel = ARGV[1], ARGV[2]
local value = redis.pcall('GET', KEY)
if is_error(value) then return {0, 0} end
local was_mine = value == token
-- The field of an heir that has not confirmed, or of one that waits.
local waited = redis.pcall('HDEL', QUEUED, token)
if is_error(waited) then
  if not string.find(waited.err, 'WRONGTYPE', 1, true) then return waited end
  waited = 0
end

-- How many heard it. `pcall`: without the right to publish, waiters poll.
local function wake()
  local receivers = redis.pcall('PUBLISH', ARGV[2], '')
  return type(receivers) == 'number' and receivers or 0
end

if not was_mine then
  if waited == 1 then redis.pcall('LREM', QUEUE, 1, token) end
  local note = redis.pcall('GET', KEYS[4])
  local noted = note == token
  if noted or note == '!' then redis.pcall('DEL', KEYS[4]) end
  if value then return {0, noted and wake() or 0} end
end

local held = was_mine and (waited == 0 or ARGV[3] == '1') and 1 or 0
repeat
  local heir = redis.pcall('LPOP', QUEUE)
  if type(heir) ~= 'string' then break end
  local confirm, listener, asked = entry(heir, now)
  if confirm then
    local receivers, failed = keep_for(heir, channel, confirm, listener, asked)
    if failed then break end
    return held == 1 and receivers or -1 - receivers
  end
  redis.pcall('HDEL', QUEUED, heir)
until false
if not was_mine then return {held, 0} end
local deleted = redis.pcall('DEL', KEY)
if is_error(deleted) then return deleted end
return {held, wake()}
