-- Who holds these keys.
-- KEYS     those of each claim, and for 'x' and 's' its fence record after them
-- ARGV[1]  1: a key that is no lease is an error; 0: it has no holders
-- ARGV[2…] for each claim its kind: 'x' where there may be a record, 's' where there may be readers, 'p'
-- Returns for each claim its holders, each {'x', 's' or 'p'; the token; its time left in milliseconds; its fence or ''}.
local strict = arg() == '1'

local function members(set, kind)
  local holders = {}
  local found = redis.pcall('ZRANGEBYSCORE', set, after_now, '+inf', 'WITHSCORES')
  if is_error(found) then return found end
  for i = 1, #found, 2 do
    holders[#holders + 1] = {kind, found[i], tonumber(found[i + 1]) - now, ''}
  end
  return holders
end

local function holders(c)
  if c.kind == 'p' then return members(c.key, 'p') end
  local record = key()
  -- Of what may be large only the beginning is looked at: a record, and nobody holds the key.
  if c.kind == 'x' and redis.pcall('GETRANGE', c.key, 0, 4) == 'done:' then return {} end
  local value = redis.pcall('GET', c.key)
  if is_error(value) then return value end
  if not value then return {} end
  if c.kind == 's' and is_marker(value) then
    local readers = members(c.set, 's')
    if is_error(readers) or #readers > 0 then return readers end
  end
  local number, owner = last_fence(record)
  local fence = owner == value and text(number) or ''
  return {{'x', value, redis.call('PTTL', c.key), fence}}
end

local answer = {}
while next_arg < #ARGV do
  local found = holders(claim())
  if is_error(found) and strict then return found end
  answer[#answer + 1] = is_error(found) and {} or found
end
return answer
