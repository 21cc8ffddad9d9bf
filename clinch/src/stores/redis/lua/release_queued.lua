-- Gives back a lease that was asked for in the queue, or withdraws the attempt from it; a key that is free then is
-- kept for the first one in the queue. Deletes first, so that it works without memory too.
-- KEYS[1]  the key
-- KEYS[2]  the queue
-- KEYS[3]  the hash beside the queue
-- KEYS[4]  the note on the writer that new readers let go first
-- ARGV[1]  the token
-- ARGV[2]  the key's channel
-- Returns {1, or 0 if the key was not this token's any more or never confirmed; how many subscribers were woken;
-- whose own channel it was, or '' for the key's}.
local token, channel = ARGV[1], ARGV[2]
local value = redis.pcall('GET', KEY)
if is_error(value) then return {0, 0, ''} end
local unconfirmed = type(redis.pcall('HGET', QUEUED, token)) == 'string'
local was_mine = value == token
if was_mine or unconfirmed then
  local deleted = was_mine and redis.pcall('DEL', KEY) or redis.pcall('ZREM', QUEUE, token)
  if is_error(deleted) then return deleted end
end
if unconfirmed then forget(token) end
local held = was_mine and not unconfirmed and 1 or 0
local noted = redis.pcall('GET', KEYS[4]) == token
if noted then redis.pcall('DEL', KEYS[4]) end
if value and not was_mine then return {held, noted and wake(channel) or 0, ''} end

local sound, heir, kept_for, over = pcall(first_in_line)
if sound and heir then
  local receivers, failed = keep_for(heir, kept_for, over, channel)
  if not failed then return {held, receivers, string.sub(heir, 1, 16)} end
end
return {held, was_mine and wake(channel) or 0, ''}
