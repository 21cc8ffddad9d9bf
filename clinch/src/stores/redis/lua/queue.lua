-- What the scripts for fair queues share; it stands after `claims.lua`.
--
-- The queue is a sorted set of tokens by arrival. Beside it, a hash has for each token its deadline and how long a
-- place is kept for it, both in milliseconds. An heir, for whom the key is kept, is out of the queue already, and its
-- field in the hash says that it has not confirmed yet.
local KEY, QUEUE, QUEUED = KEYS[1], KEYS[2], KEYS[3]

-- The deadline of an entry, and how long a place is kept for it.
local function entry(token)
  local deadline, confirm = string.match(redis.call('HGET', QUEUED, token) or '', '^(%d+) (%d+)$')
  return tonumber(deadline or 0), tonumber(confirm or 0)
end

-- The first one whose time is not over, how long a place is kept for it, and those before it whose time is.
local function first_in_line()
  local over, from = {}, 0
  while true do
    local some = redis.call('ZRANGE', QUEUE, from, from + 15)
    if #some == 0 then return nil, nil, over end
    for _, token in ipairs(some) do
      local deadline, confirm = entry(token)
      if deadline > now then return token, math.max(confirm, 1), over end
      over[#over + 1] = token
    end
    from = from + 16
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

-- Keeps the free key for one of the queue and wakes it. Returns how many heard it, or an error.
local function keep_for(token, confirm, over, channel)
  local set = redis.pcall('SET', KEY, token, 'PX', confirm)
  if is_error(set) then return 0, set end
  redis.pcall('ZREM', QUEUE, token)
  tidy(over, token)
  return wake(channel .. ':' .. string.sub(token, 1, 16))
end
