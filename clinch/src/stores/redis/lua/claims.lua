-- What the scripts for claims of every kind share; it stands before each of them.
--
-- Each claim is one kind and its keys, which follow each other in KEYS:
--   x  exclusive:            the key
--   w  exclusive on a lock:  the key, the note on who comes next, as `acquire.lua` writes it: new readers let it go first
--   f  exclusive and fenced: the key, that note, the fence record `E token`
--   s  shared:               the key, the sorted set of readers, that note
--   p  a permit:             the sorted set of holders
-- The scores of both sorted sets are when a member ends, in milliseconds by the server's clock. A score that is not
-- later than now is over, and never counts. While readers live, their key holds `shared:` and the token of the one
-- who ends last, and expires with it; without that, whatever is in the set of readers is stale.
--
-- A server without memory refuses what may need some only as a script's first write. So acquiring begins with such a
-- write, and renewing and releasing with another.
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function text(number) return string.format('%.0f', number) end
local after_now = '(' .. text(now)

local next_key, next_arg = 0, 0
local function key()
  next_key = next_key + 1
  return KEYS[next_key]
end
local function arg()
  next_arg = next_arg + 1
  return ARGV[next_arg]
end
local function claim()
  local c = {kind = arg(), key = key()}
  if c.kind == 's' then c.set = key() end
  if c.kind == 's' or c.kind == 'w' or c.kind == 'f' then c.note = key() end
  if c.kind == 'f' then c.record = key() end
  return c
end

local function is_error(answer) return type(answer) == 'table' and answer.err ~= nil end
-- Where one waits that cannot inherit, nobody does: of those who are woken the first to ask has the key.
local function disinherit(note, noted_for) redis.pcall('SET', note, '!', 'PX', noted_for) end

-- Whomever another note is of, it has done its work when a writer that waited is granted the key.
local function forget(note)
  if redis.pcall('GET', note) ~= '!' then redis.pcall('DEL', note) end
end

local function is_marker(value) return type(value) == 'string' and string.sub(value, 1, 7) == 'shared:' end

-- When a member of a sorted set ends, 0 if it is none; or an error.
local function ends(set, token)
  local score = redis.pcall('ZSCORE', set, token)
  if is_error(score) then return 0, score end
  return tonumber(score or 0)
end

-- The live member that ends first, and when; or an error.
local function first(set)
  local found = redis.pcall('ZRANGEBYSCORE', set, after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if is_error(found) then return nil, nil, found end
  return found[1], tonumber(found[2] or 0)
end

-- The member that ends last, and when.
local function last(set)
  local found = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  return found[1], tonumber(found[2] or 0)
end

-- Puts a sorted set in order after a change: what is over goes, and the rest expires with the last of it.
local function settle(set)
  redis.pcall('ZREMRANGEBYSCORE', set, '-inf', text(now))
  local token, at = last(set)
  if token then redis.pcall('PEXPIREAT', set, text(at)) end
  return token, at
end

-- The same for readers, and for the marker that keeps others out. Tells whether any reader is left.
local function settle_readers(c)
  local token, at = settle(c.set)
  if not token then
    redis.pcall('DEL', c.key, c.set)
    return false
  end
  redis.pcall('PEXPIREAT', c.key, text(at))
  if redis.pcall('GET', c.key) ~= 'shared:' .. token then
    redis.pcall('SET', c.key, 'shared:' .. token, 'PXAT', text(at))
  end
  return true
end

-- Whether this token is a live reader; or an error.
local function reads(c, token)
  local value = redis.pcall('GET', c.key)
  if is_error(value) then return false, value end
  if not is_marker(value) then return false end
  local at, failed = ends(c.set, token)
  return at > now, failed, at
end

-- The last number in a fence record and whose it was; 0 where there is none that can be read. Or an error.
local function last_fence(record)
  local value = redis.pcall('GET', record)
  if is_error(value) then return 0, nil, value end
  local number, token = string.match(value or '', '^(%d+) (.*)$')
  number = tonumber(number or 0)
  -- Above this, numbers are not exact: nothing that we wrote.
  if number >= 2 ^ 53 then return 0 end
  return number, token
end

-- Gives a number above the last one and the floor. The record outlives the number by a day, so that after it the
-- clock alone is above it.
local function mint(record, token, above, floor)
  local number = math.max(above + 1, micros, floor + 1)
  local until_at = math.max(now, math.floor(number / 1000)) + 86400000
  local set = redis.pcall('SET', record, text(number) .. ' ' .. token, 'PXAT', text(until_at))
  if is_error(set) then return nil, set end
  return text(number)
end

-- How many heard it. `pcall`: without the right to publish, waiters poll.
local function wake(channel, news)
  local receivers = redis.pcall('PUBLISH', channel, news or '')
  return type(receivers) == 'number' and receivers or 0
end
