-- Gives back one exclusive claim: hands it over to its heir, or deletes it; and wakes those who wait. Deleting needs no memory, so
-- it works when there is none left.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt that waited: the note on who comes next, as `acquire.lua` writes it
-- ARGV[1]  the token
-- ARGV[2]  the key's channel; empty where nobody waits for the key
-- Returns how many subscribers were woken, or -1 less that many if the key was not this token's any more.
local held, note = redis.pcall('GET', KEYS[1]) == ARGV[1], KEYS[2] and redis.pcall('GET', KEYS[2])
-- A key of another type is an error table there, and so not this token's. Nor is such a note anybody's.
local kept, asked, heir
if type(note) == 'string' then kept, asked, heir = string.match(note, '^>(%d+)( %d+) (.+)$') end
local news
if held and heir and heir ~= ARGV[1] then
  local set = redis.pcall('SET', KEYS[1], heir, 'PX', kept)
  if not set.err then
    redis.pcall('DEL', KEYS[2])
    -- By its first digits: too little to release it with.
    news = string.sub(heir, 1, 16) .. asked
  end
elseif note and (note == ARGV[1] or heir == ARGV[1]) then
  -- It waits no longer. Readers that it held back can go now; of an heir nobody has to know.
  local deleted = redis.pcall('DEL', KEYS[2])
  if type(deleted) == 'table' then return deleted end
  if not held and heir then return -1 end
elseif not held then
  return -1
end
if held and not news then
  local deleted = redis.pcall('DEL', KEYS[1])
  if type(deleted) == 'table' then return deleted end
end
-- `pcall`: without the right to publish, waiters poll.
local woken = ARGV[2] ~= '' and redis.pcall('PUBLISH', ARGV[2], news or '')
if type(woken) ~= 'number' then woken = 0 end
return held and woken or -1 - woken
