-- What the scripts for fair queues share; it stands before each of them. They run once for every hand-over, so they are short.
--
-- The queue is a list of tokens in the order of their arrival. Beside it, a hash has for each token what is known of it, in a form
-- that takes no pattern to read: the listener by which it is told (16 signs), how long a place is kept for it, the moment at which
-- it asked last, as that listener counts ('' if it does not take the news for its grant), and its deadline; times are in
-- milliseconds. An heir, for whom the key is kept, is out of the queue already, and its field in the hash says that it has not
-- confirmed yet.
--
-- Functions that take nothing from around them cost a tenth of those that do.
local KEY, QUEUE, QUEUED = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000

local function is_error(answer) return type(answer) == 'table' and answer.err ~= nil end

-- What is known of one in the queue; nothing if its time is over. The moment comes with the blank before it.
local function entry(token, now)
  local known = redis.call('HGET', KEYS[3], token)
  local first = known and string.find(known, ' ', 17, true)
  local second = first and string.find(known, ' ', first + 1, true)
  if second and tonumber(string.sub(known, second + 1)) > now then
    return string.sub(known, 17, first - 1), string.sub(known, 1, 16), string.sub(known, first, second - 1)
  end
end

-- Keeps the key for one that was first in the queue and wakes it. Returns how many heard it, or an error.
local function keep_for(token, channel, confirm, listener, asked)
  local set = redis.pcall('SET', KEYS[1], token, 'PX', confirm)
  if set.err then return 0, set end
  -- `pcall`: without the right to publish, waiters poll.
  channel = channel .. ':' .. listener
  local receivers = redis.pcall('PUBLISH', channel, string.sub(token, 1, 16) .. asked)
  return type(receivers) == 'number' and receivers or 0
end
