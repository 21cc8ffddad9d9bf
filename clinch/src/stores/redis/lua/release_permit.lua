-- Gives back one permit, and wakes those who wait: what `release_all.lua` does for it, at half the price. Needs no memory.
-- KEYS[1]  the sorted set of holders
-- ARGV[1]  the token
-- ARGV[2]  its channel
-- Answers as `release_all.lua` does.
local score = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
-- A key of another type is an error table here, and so not this token's.
if not score or type(score) == 'table' then return {0, 0} end
local removed = redis.pcall('ZREM', KEYS[1], ARGV[1])
if type(removed) == 'table' then return removed end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local left = redis.call('PTTL', KEYS[1])
if left > 0 and now + left <= tonumber(score) + 1 then
  -- The set expired with this one; from here on with the last of the rest.
  local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  redis.pcall('PEXPIREAT', KEYS[1], last[2])
end
if tonumber(score) <= now then return {0, 0} end
-- `pcall`: without the right to publish, waiters poll.
local receivers = redis.pcall('PUBLISH', ARGV[2], '')
return {1, type(receivers) == 'number' and receivers or 0}
