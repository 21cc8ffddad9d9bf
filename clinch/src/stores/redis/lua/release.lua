-- Gives back one exclusive claim, and wakes those who wait. Needs no memory, so it works when there is none left.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt that waited: the note on the writer that new readers let go first
-- ARGV[1]  the token
-- ARGV[2]  the key's channel
-- Returns how many subscribers were woken, or -1 less that many if the key was not this token's any more.
local held, woken = false, 0
-- A key of another type is an error table here, and so not this token's.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  local deleted = redis.pcall('DEL', KEYS[1])
  if type(deleted) == 'table' then return deleted end
  held = true
end
local noted = KEYS[2] and redis.pcall('GET', KEYS[2]) == ARGV[1]
if noted then redis.pcall('DEL', KEYS[2]) end
if held or noted then
  -- `pcall`: without the right to publish, waiters poll.
  local receivers = redis.pcall('PUBLISH', ARGV[2], '')
  if type(receivers) == 'number' then woken = receivers end
end
if held then return woken end
return -1 - woken
