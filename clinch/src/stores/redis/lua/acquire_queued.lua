-- Grants one exclusive claim in the order of the key's queue, or puts the attempt into it.
-- KEYS[1]  the key
-- KEYS[2]  the queue
-- KEYS[3]  the hash beside the queue
-- KEYS[4]  the note on who comes next, as `acquire.lua` writes it: new readers let it go first
-- KEYS[5]  for a fenced claim: the fence record
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  how much longer it waits, in milliseconds; 0: it does not enter the queue
-- ARGV[4]  how long the key is kept for it when its turn comes, in milliseconds
-- ARGV[5]  the key's channel
-- ARGV[6]  the listener by which it is told that its turn has come
-- ARGV[7]  the moment at which it asks, as that one counts; '' if it will ask again before it has the lease
-- ARGV[8]  for a fenced claim: the floor
-- Returns as `acquire_all.lua` does, if it is granted; else one text, because tables are dear: how long what is in the way has
-- left, when to ask again, and the token in the way, with blanks between them.
local token, patience, confirm = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local value = redis.pcall('GET', KEY)
if is_error(value) then return value end

-- Usually somebody else has it, and nothing of this is needed.
if not value or value == token then
  local function text(number) return string.format('%.0f', number) end

  -- Grants it: with the fence that it has, or with a new one after `write`, which may fail.
  local function grant(write)
    local record, last, owner = KEYS[5], 0, nil
    if record then
      local found = redis.pcall('GET', record)
      if is_error(found) then return found end
      last, owner = string.match(found or '', '^(%d+) (.*)$')
      last = tonumber(last or 0)
      -- Above this, numbers are not exact: nothing that we wrote.
      if last >= 2 ^ 53 then last, owner = 0, nil end
    end
    local failed = write and write()
    if is_error(failed) then return failed end
    if not record then return {0, ''} end
    if not write and owner == token then return {0, text(last)} end
    -- Above the last one and the floor. The record outlives the number by a day, so that after it the clock alone is above it.
    local number = math.max(last + 1, clock[1] * 1000000 + clock[2], tonumber(ARGV[8]) + 1)
    local until_at = math.max(now, math.floor(number / 1000)) + 86400000
    local set = redis.pcall('SET', record, text(number) .. ' ' .. token, 'PXAT', text(until_at))
    if is_error(set) then return set end
    return {0, text(number)}
  end

  -- Forgets the heirs that never confirmed: all who have a field and no place in the queue, but for the heir of now.
  local function tidy(heir)
    local known = redis.call('HLEN', QUEUED) - (heir and 1 or 0)
    if known == 0 then return end
    local queue, waits = redis.call('LRANGE', QUEUE, 0, -1), {}
    if known == #queue then return end
    for _, one in ipairs(queue) do waits[one] = true end
    for _, one in ipairs(redis.call('HKEYS', QUEUED)) do
      if one ~= heir and not waits[one] then redis.pcall('HDEL', QUEUED, one) end
    end
  end

  if value == token then
    local mark = redis.pcall('HGET', QUEUED, token)
    if is_error(mark) then return mark end
    -- Held and confirmed: nothing moves.
    if not mark then return grant() end
    -- The heir confirms. The expiry first: it needs no memory, and after it the rest needs none either.
    return grant(function()
      local kept = redis.pcall('PEXPIRE', KEY, ARGV[2])
      if is_error(kept) then return kept end
      redis.pcall('HDEL', QUEUED, token)
      redis.pcall('DEL', KEYS[4])
    end)
  end

  if not value then
    -- The first one whose time is not over, and those before it.
    local over, heir, kept_for, listener, asked = {}, nil, nil, nil, nil
    repeat
      local one = redis.pcall('LRANGE', QUEUE, #over, #over)
      if is_error(one) then return one end
      heir = one[1]
      if heir then
        kept_for, listener, asked = entry(heir, now)
        if not kept_for then over[#over + 1] = heir end
      end
    until not heir or kept_for
    local function forget_those_before()
      for _, one in ipairs(over) do
        redis.call('LPOP', QUEUE)
        redis.pcall('HDEL', QUEUED, one)
      end
      if heir then redis.call('LPOP', QUEUE) end
    end
    if not heir or heir == token then
      return grant(function()
        local set = redis.pcall('SET', KEY, token, 'PX', ARGV[2])
        if is_error(set) then return set end
        forget_those_before()
        redis.pcall('HDEL', QUEUED, token)
        tidy()
        redis.pcall('DEL', KEYS[4])
      end)
    end
    local _, not_kept = keep_for(heir, ARGV[5], kept_for, listener, asked)
    if not_kept then return not_kept end
    forget_those_before()
    tidy(heir)
    redis.pcall('DEL', KEYS[4])
    value = heir
  end
end

-- How many are before it.
local before
if patience > 0 then
  local mine = ARGV[6] .. ARGV[4] .. ' ' .. ARGV[7] .. ' ' .. string.format('%d', now + patience)
  local new = redis.pcall('HSET', QUEUED, token, mine)
  if type(new) == 'table' then return new end
  -- Who has no field has no place; one that has may have been skipped.
  if new == 0 then
    before = redis.pcall('LPOS', QUEUE, token)
    if is_error(before) then return before end
  end
  if not before then
    local length = redis.pcall('RPUSH', QUEUE, token)
    if is_error(length) then
      redis.pcall('HDEL', QUEUED, token)
      return length
    end
    before = length - 1
  end
  -- Both are there as long as anybody is to be remembered, and a second longer, so that not everybody has to see to it. A queue
  -- of one may be a new one.
  local lives = patience + confirm
  if before == 0 or redis.call('PTTL', QUEUED) < lives then
    for _, name in ipairs({QUEUE, QUEUED}) do
      if redis.call('PTTL', name) < lives then redis.pcall('PEXPIRE', name, lives + 1000) end
    end
  end
  -- New readers let it go first. Without memory there is no note, and the denial stands all the same.
  local noted_for = math.max(1, math.min(patience, confirm))
  if string.sub(value, 1, 7) == 'shared:' then
    redis.pcall('SET', KEYS[4], token, 'PX', noted_for)
  elseif before == 0 then
    -- Nor does anybody inherit who stands outside of the queue.
    redis.pcall('SET', KEYS[4], '!', 'PX', noted_for)
  end
end

local left = redis.call('PTTL', KEY)
local again = left
-- Those further back ask later, so that a long queue does not ask all at once.
if left >= 0 and before then again = left + before * confirm end
return string.format('%d %d ', left, again) .. value
