-- What the scripts for fair queues share; it stands after `claims.lua`.
--
-- The queue is a sorted set of tokens by arrival. Beside it, a hash has for each token its deadline and how long a
-- place is kept for it, both in milliseconds, the listener by which it is told, and the moment at which it asked last, as
-- that listener counts; '' if it does not take the news for its grant. An heir, for whom the key is kept, is out of the queue
-- already, and its field in the hash says that it has not confirmed yet.
local KEY, QUEUE, QUEUED = KEYS[1], KEYS[2], KEYS[3]

-- The first one whose time is not over, what is known of it, and those before it whose time is.
local function first_in_line()
  local over, at = {}, 0
  while true do
    local token = redis.call('ZRANGE', QUEUE, at, at)[1]
    if not token then return nil, over end
    local deadline, confirm, listener, asked =
      string.match(redis.call('HGET', QUEUED, token) or '', '^(%d+) (%d+) ?(%x*) ?(%d*)$')
    if tonumber(deadline or 0) > now then
      return {token = token, confirm = math.max(tonumber(confirm), 1), listener = listener, asked = asked}, over
    end
    at = at + 1
    over[at] = token
  end
end

local function forget(token)
  redis.pcall('ZREM', QUEUE, token)
  redis.pcall('HDEL', QUEUED, token)
end

-- Forgets those whose time is over, and the heirs that never confirmed: all who have a field and no place in the
-- queue, but for the heir of now.
local function tidy(over, heir)
  for _, token in ipairs(over) do forget(token) end
  if redis.call('HLEN', QUEUED) <= redis.call('ZCARD', QUEUE) + (heir and 1 or 0) then return end
  for _, token in ipairs(redis.call('HKEYS', QUEUED)) do
    if token ~= heir and not redis.call('ZSCORE', QUEUE, token) then redis.pcall('HDEL', QUEUED, token) end
  end
end

-- Keeps the key, which nobody holds any more, for one of the queue and wakes it. Returns how many heard it, or an error.
local function keep_for(heir, channel)
  local set = redis.pcall('SET', KEY, heir.token, 'PX', heir.confirm)
  if is_error(set) then return 0, set end
  redis.pcall('ZREM', QUEUE, heir.token)
  return wake(channel .. ':' .. heir.listener, string.sub(heir.token, 1, 16) .. ' ' .. heir.asked)
end
