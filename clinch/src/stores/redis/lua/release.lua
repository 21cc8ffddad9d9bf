-- Gives back what a token holds, and wakes those who wait. Needs no memory, so it works when there is none left.
-- KEYS     the key of each claim
-- ARGV[1]  the token
-- ARGV[2…] the channel of each claim
-- Returns 1, or 0 if not all claims were this token's any more.
local held = 1
local mine = {}
for i, key in ipairs(KEYS) do
  -- A key of another type is an error table here, and so not this token's.
  mine[i] = redis.pcall('GET', key) == ARGV[1]
  if not mine[i] then held = 0 end
end
for i, key in ipairs(KEYS) do
  if mine[i] then
    local deleted = redis.pcall('DEL', key)
    if type(deleted) == 'table' then return deleted end
  end
end
for i in ipairs(KEYS) do
  -- `pcall`: without the right to publish, waiters poll.
  if mine[i] then redis.pcall('PUBLISH', ARGV[i + 1], '') end
end
return held
