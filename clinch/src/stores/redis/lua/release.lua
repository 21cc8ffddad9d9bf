-- Gives back one exclusive claim, and wakes those who wait. Needs no memory, so it works when there is none left.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt that waited: the note on the writer that new readers let go first
-- ARGV[1]  the token
-- ARGV[2]  the key's channel; empty where nobody waits for the key
-- Returns how many subscribers were woken, or -1 less that many if the key was not this token's any more.
local held = redis.pcall('GET', KEYS[1]) == ARGV[1]
-- A key of another type is an error table there, and so not this token's. A writer that was granted the key has no note any more.
if held or KEYS[2] and redis.pcall('GET', KEYS[2]) == ARGV[1] then
  local deleted = redis.pcall('DEL', KEYS[held and 1 or 2])
  if type(deleted) == 'table' then return deleted end
  -- `pcall`: without the right to publish, waiters poll.
  local woken = ARGV[2] ~= '' and redis.pcall('PUBLISH', ARGV[2], '')
  if type(woken) ~= 'number' then woken = 0 end
  return held and woken or -1 - woken
end
return -1
