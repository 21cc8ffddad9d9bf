-- Grants one exclusive claim in the order of the key's queue, or puts the attempt into it.
-- KEYS[1]  the key
-- KEYS[2]  the queue
-- KEYS[3]  the hash beside the queue
-- KEYS[4]  the note on the writer that new readers let go first
-- KEYS[5]  for a fenced claim: the fence record
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  how much longer it waits, in milliseconds; 0: it does not enter the queue
-- ARGV[4]  how long the key is kept for it when its turn comes, in milliseconds
-- ARGV[5]  the key's channel
-- ARGV[6]  the listener by which it is told that its turn has come
-- ARGV[7]  the moment at which it asks, as that one counts; '' if it will ask again before it has the lease
-- ARGV[8]  for a fenced claim: the floor
-- Returns as `acquire_all.lua` does.
local token, ttl, patience, confirm = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local channel, record = ARGV[5], KEYS[5]

local value = redis.pcall('GET', KEY)
if is_error(value) then return value end
local mark = redis.pcall('HGET', QUEUED, token)
if is_error(mark) then return mark end
local number, owner, failed = 0, nil, nil
if record then
  number, owner, failed = last_fence(record)
  if failed then return failed end
end

local function granted(fence) return {0, fence or ''} end

-- A new number; a false one where none was asked for.
local function new_fence()
  if not record then return false end
  return mint(record, token, number, tonumber(ARGV[8]))
end

if value == token and not mark then
  -- Held and confirmed: nothing moves.
  if not record or owner == token then return granted(record and text(number)) end
  local fence, no_fence = new_fence()
  return no_fence or granted(fence)
end
if value == token then
  -- The heir confirms. The expiry first: it needs no memory, and after it the rest needs none either.
  local kept = redis.pcall('PEXPIRE', KEY, ttl)
  if is_error(kept) then return kept end
  local fence, no_fence = new_fence()
  if no_fence then return no_fence end
  forget(token)
  redis.pcall('DEL', KEYS[4])
  return granted(fence)
end

if not value then
  local heir, over = first_in_line()
  if not heir or heir.token == token then
    local fence, no_fence = new_fence()
    if no_fence then return no_fence end
    local set = redis.pcall('SET', KEY, token, 'PX', ttl)
    if is_error(set) then return set end
    forget(token)
    tidy(over)
    redis.pcall('DEL', KEYS[4])
    return granted(fence)
  end
  local _, not_kept = keep_for(heir, channel)
  if not_kept then return not_kept end
  tidy(over, heir.token)
  redis.pcall('DEL', KEYS[4])
  value = heir.token
end

-- How many are before it. Who has no field has no place; one that has may have been skipped.
local before
if patience > 0 then
  before = mark and redis.pcall('ZRANK', QUEUE, token)
  if is_error(before) then return before end
  if not before then
    local last_one, arrived_last = last(QUEUE)
    local added = redis.pcall('ZADD', QUEUE, arrived_last + 1, token)
    if is_error(added) then return added end
    before = last_one and redis.call('ZCARD', QUEUE) - 1 or 0
  end
  local entry = text(now + patience) .. ' ' .. ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7]
  redis.pcall('HSET', QUEUED, token, entry)
  -- Both are there as long as anybody is to be remembered. A queue of one may be a new one.
  local lives = patience + confirm
  if before == 0 or redis.call('PTTL', QUEUED) < lives then
    for _, name in ipairs({QUEUE, QUEUED}) do
      if redis.call('PTTL', name) < lives then redis.pcall('PEXPIREAT', name, text(now + lives)) end
    end
  end
end

-- New readers let it go first. Without memory there is no note, and the denial stands all the same.
if patience > 0 and is_marker(value) then
  redis.pcall('SET', KEYS[4], token, 'PX', text(math.max(1, math.min(patience, confirm))))
end
local left = redis.call('PTTL', KEY)
local again = left
-- Those further back ask later, so that a long queue does not ask all at once.
if left >= 0 and before then again = left + before * confirm end
return {1, 'v', value, left, again}
