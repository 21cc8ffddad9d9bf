-- Grants one exclusive claim on a lock with a fence: what `acquire_all.lua` does for it, at a third of the price. On a free
-- key look and write are one command, and so are they on the fence record.
-- KEYS[1]  the key
-- KEYS[2]  the fence record `E token`
-- KEYS[3]  for an attempt that waits: the note on who comes next, as `acquire.lua` writes it
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  the floor of the fence
-- ARGV[4]  for an attempt that waits: how long its note is good, in milliseconds
-- Returns the number of its fence; or says as `acquire_all.lua` does who is in the way.
local token = ARGV[1]
local set = redis.pcall('SET', KEYS[1], token, 'NX', 'PX', ARGV[2])
if not set or set.err then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then return value end
  if value and value ~= token then
    -- Without memory there is no note, and the denial stands all the same.
    if KEYS[3] and string.sub(value, 1, 7) == 'shared:' then
      redis.pcall('SET', KEYS[3], token, 'PX', ARGV[4])
    elseif KEYS[3] then
      -- It cannot inherit, since its number is given when it asks.
      redis.pcall('SET', KEYS[3], '!', 'PX', ARGV[4])
    end
    local left = redis.call('PTTL', KEYS[1])
    return {1, 'v', value, left, left}
  end
  if value then
    local record = redis.pcall('GET', KEYS[2])
    if type(record) == 'table' then return record end
    local number, owner = string.match(record or '', '^(%d+) (.*)$')
    if owner == token and tonumber(number) < 2 ^ 53 then return number end
  end
  if set then return set end
end
-- Above the floor, and above the last one, which the clock nearly always is: so it is written first and then compared. The
-- record outlives the number by a day, so that after it the clock alone is above it.
local clock = redis.call('TIME')
local fence = clock[1] .. string.sub('000000', #clock[2] + 1) .. clock[2]
local micros = tonumber(fence)
local number = math.max(micros, ARGV[3] + 1)
local before, last
repeat
  local lasts = '86400000'
  if number > micros then
    fence, lasts = string.format('%.0f', number), string.format('%.0f', math.floor((number - micros) / 1000) + 86400001)
  end
  before = redis.pcall('SET', KEYS[2], fence .. ' ' .. token, 'PX', lasts, 'GET')
  if type(before) == 'table' then
    -- No fence, no lock.
    if set then redis.pcall('DEL', KEYS[1]) end
    return before
  end
  last = before and tonumber(string.match(before, '^(%d+) ')) or 0
  -- From 2^53 on, numbers are not exact: nothing that we wrote.
  if last >= 2 ^ 53 then last = 0 end
  local enough = number > last
  number = last + 1
until enough
-- One that does not wait says nothing of those who do.
if set and KEYS[3] and redis.pcall('GET', KEYS[3]) ~= '!' then redis.pcall('DEL', KEYS[3]) end
return fence
