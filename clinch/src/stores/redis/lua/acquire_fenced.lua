-- Grants one exclusive claim on a lock with a fence: what `acquire_all.lua` does for it, at half the price.
-- KEYS[1]  the key
-- KEYS[2]  the note on the writer that new readers let go first
-- KEYS[3]  the fence record `E token`
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  the floor of the fence
-- ARGV[4]  how long a writer that readers deny is noted, in milliseconds; 0 if it will not come again
-- Answers as `acquire_all.lua` does.
local token, noted_for = ARGV[1], tonumber(ARGV[4])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value and value ~= token then
  -- Without memory there is no note, and the denial stands all the same.
  if noted_for > 0 and string.sub(value, 1, 7) == 'shared:' then redis.pcall('SET', KEYS[2], token, 'PX', noted_for) end
  local left = redis.call('PTTL', KEYS[1])
  return {1, 'v', value, left, left}
end
local record = redis.pcall('GET', KEYS[3])
if type(record) == 'table' then return record end
local last = tonumber(record and string.match(record, '^(%d+) ') or 0)
-- Above this, numbers are not exact: nothing that we wrote.
if last >= 2 ^ 53 then last, record = 0, nil end
if value and record and string.match(record, '^%d+ (.*)$') == token then return {0, string.format('%.0f', last), 0} end
-- Above the last one and the floor. The record outlives the number by a day, so that after it the clock alone is above it.
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local number = math.max(last + 1, micros, tonumber(ARGV[3]) + 1)
local lasts = '86400000'
if number > micros then lasts = string.format('%.0f', math.floor((number - micros) / 1000) + 86400001) end
local fence = string.format('%.0f', number)
local set = redis.pcall('SET', KEYS[3], fence .. ' ' .. token, 'PX', lasts)
if type(set) == 'table' and set.err then return set end
if value then return {0, fence, 0} end
set = redis.pcall('SET', KEYS[1], token, 'PX', ARGV[2])
if type(set) == 'table' and set.err then return set end
-- One that does not wait says nothing of those who do.
if noted_for > 0 then redis.pcall('DEL', KEYS[2]) end
return {0, fence, 1}
