-- Gives back what a token holds of its claims, of whatever kinds, and wakes those who wait. Deletes first, so that it
-- works without memory too.
-- KEYS     those of each claim
-- ARGV[1]  the token
-- ARGV[2…] for each claim: its kind and its channel
-- Returns {1, or 0 if not all claims were this token's any more; how many subscribers each claim's channel woke}.
local token = arg()
local answer, wakes = {1}, {}

local function is_mine(c) return redis.pcall('GET', c.key) == token end

-- Each gives a claim back, and tells whether it was held, whether a place is free now, and what failed.
local function release_exclusive(c)
  local held = is_mine(c)
  if held then
    local deleted = redis.pcall('DEL', c.key)
    if is_error(deleted) then return false, false, deleted end
  end
  local noted = c.note and redis.pcall('GET', c.note) == token
  if noted then redis.pcall('DEL', c.note) end
  return held, held or noted
end

local function release_shared(c)
  local held = reads(c, token)
  local removed = redis.pcall('ZREM', c.set, token)
  if is_error(removed) then return false, false, held and removed end
  if not held then return false, false end
  return true, not settle_readers(c)
end

local function release_permit(c)
  local held = ends(c.key, token) > now
  local removed = redis.pcall('ZREM', c.key, token)
  if is_error(removed) then return false, false, held and removed end
  if removed == 1 then settle(c.key) end
  return held, held
end

local release = {x = release_exclusive, w = release_exclusive, s = release_shared, p = release_permit}

while next_arg < #ARGV do
  local c = claim()
  local channel = arg()
  local held, free, failed = release[c.kind](c)
  if failed then return failed end
  if not held then answer[1] = 0 end
  wakes[#wakes + 1] = free and channel or false
end
for i, channel in ipairs(wakes) do
  answer[i + 1] = channel and wake(channel) or 0
end
return answer
