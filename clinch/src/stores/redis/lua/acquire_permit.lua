-- Grants one permit: what `acquire_all.lua` does for it, at half the price.
-- KEYS[1]  the sorted set of holders
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  how many may be held at a time
-- Answers as `acquire_all.lua` does.
local token, ttl = ARGV[1], tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local at = string.format('%.0f', now + ttl)
local after_now = '(' .. string.format('%.0f', now)
local live = redis.pcall('ZCOUNT', KEYS[1], after_now, '+inf')
if type(live) == 'table' then return live end
if live < tonumber(ARGV[3]) then
  local added = redis.pcall('ZADD', KEYS[1], 'NX', at, token)
  if type(added) == 'table' then return added end
  if added == 0 then
    if tonumber(redis.call('ZSCORE', KEYS[1], token)) > now then return {0, '', 0} end
    redis.call('ZADD', KEYS[1], at, token)
  end
  -- What is over goes, and the rest expires with the last of it.
  redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
  if redis.call('PTTL', KEYS[1]) < ttl then redis.pcall('PEXPIREAT', KEYS[1], at) end
  return {0, '', 1}
end
if tonumber(redis.call('ZSCORE', KEYS[1], token) or 0) > now then return {0, '', 0} end
local first = redis.call('ZRANGEBYSCORE', KEYS[1], after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local left = (tonumber(first[2]) or now) - now
return {1, 'p', first[1] or '', left, left}
