-- What the scripts for fair queues share; it stands before each of them. They run once for every hand-over, so they are short.
--
-- The queue is a list of tokens in the order of their arrival. Beside it, a hash has for each token its deadline and how long a
-- place is kept for it, both in milliseconds, the listener by which it is told, and the moment at which it asked last, as
-- that listener counts; '' if it does not take the news for its grant. An heir, for whom the key is kept, is out of the queue
-- already, and its field in the hash says that it has not confirmed yet.
local KEY, QUEUE, QUEUED = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function text(number) return string.format('%.0f', number) end
local function is_error(answer) return type(answer) == 'table' and answer.err ~= nil end

-- What is known of one in the queue; nothing if its time is over.
local function entry(token)
  local deadline, confirm, listener, asked =
    string.match(redis.call('HGET', QUEUED, token) or '', '^(%d+) (%d+) ?(%x*) ?(%d*)$')
  if deadline and tonumber(deadline) > now then return confirm, listener, asked end
end

-- Keeps the key for one that was first in the queue and wakes it. Returns how many heard it, or an error.
local function keep_for(token, channel, confirm, listener, asked)
  local set = redis.pcall('SET', KEY, token, 'PX', confirm)
  if is_error(set) then return 0, set end
  -- `pcall`: without the right to publish, waiters poll.
  channel = channel .. ':' .. listener
  local receivers = redis.pcall('PUBLISH', channel, string.sub(token, 1, 16) .. ' ' .. asked)
  return type(receivers) == 'number' and receivers or 0
end
