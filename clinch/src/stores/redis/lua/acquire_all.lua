-- Grants all claims of an attempt, of whatever kinds, or none: looks at everything first and writes only then.
-- KEYS     those of each claim
-- ARGV[1]  the token
-- ARGV[2]  how long a writer that readers deny is noted, in milliseconds; 0 if it will not come again; -1: only look
-- ARGV[3…] for each claim: its kind, its TTL in milliseconds, and its number of permits or the floor of its fence
-- Returns {0, the fence of each claim, or '', and then for each claim 1 if it was granted just now}, or {which claim was denied, the kind of its holder ('v': the key's value
-- tells; 's': a reader; 'p': of a permit; '': none), the holder, its time left, when to ask again}.
local token, noted_for = arg(), tonumber(arg())
local claims = {}

local function denied(kind, holder, left, again) return {#claims, kind, holder, left, again or left} end

-- What stands in the way of a claim, if anything: a denial or an error.
local function look_exclusive(c)
  local value = redis.pcall('GET', c.key)
  if is_error(value) then return value end
  if value and value ~= token then
    if c.note and noted_for > 0 then
      -- Without memory there is no note, and the denial stands all the same.
      if is_marker(value) then redis.pcall('SET', c.note, token, 'PX', noted_for) else disinherit(c.note, noted_for) end
    end
    return denied('v', value, redis.call('PTTL', c.key))
  end
  c.mine = value == token
  if c.record then
    local number, owner, failed = last_fence(c.record)
    if failed then return failed end
    c.last = number
    if c.mine and owner == token then c.fence = text(number) end
  end
end

local function look_shared(c)
  local value = redis.pcall('GET', c.key)
  if is_error(value) then return value end
  local at, wrong_set = ends(c.set, token)
  if wrong_set then return wrong_set end
  local note = redis.pcall('PTTL', c.note)
  if is_error(note) then return note end
  -- That somebody waits who cannot inherit promises nothing to a writer.
  if note > 0 and redis.pcall('GET', c.note) == '!' then note = 0 end
  if not value then
    -- Free, but a writer was promised to be next.
    if note > 0 then return denied('', '', note) end
    return
  end
  local reader, reader_ends
  if is_marker(value) then reader, reader_ends = first(c.set) end
  if not reader then
    if noted_for > 0 then disinherit(c.note, noted_for) end
    return denied('v', value, redis.call('PTTL', c.key))
  end
  c.mine, c.joins = at > now, true
  if not c.mine and note > 0 then
    local left = reader_ends - now
    return denied('s', reader, left, math.min(note, left))
  end
end

local function look_permit(c)
  local at, failed = ends(c.key, token)
  if failed then return failed end
  c.mine = at > now
  if not c.mine and redis.call('ZCOUNT', c.key, after_now, '+inf') >= c.number then
    local holder, holder_ends = first(c.key)
    return denied('p', holder, holder_ends - now)
  end
end

local look = {x = look_exclusive, w = look_exclusive, f = look_exclusive, s = look_shared, p = look_permit}

while next_arg < #ARGV do
  local c = claim()
  c.ttl, c.number = tonumber(arg()), tonumber(arg())
  claims[#claims + 1] = c
  local obstacle = look[c.kind](c)
  if obstacle then return obstacle end
end

if noted_for < 0 then return {0} end
-- Everything was looked at; from here on nothing can fail but the first write. A number that then stays unused does
-- no harm.
local granted = {0}
for i, c in ipairs(claims) do
  if c.record and not c.fence then
    local number, failed = mint(c.record, token, c.last, c.number)
    if failed then return failed end
    c.fence = number
  end
  granted[i + 1] = c.fence or ''
  granted[#claims + i + 1] = c.mine and 0 or 1
end
for _, c in ipairs(claims) do
  if c.mine then
    -- Nothing moves.
  elseif c.kind == 'p' then
    local added = redis.pcall('ZADD', c.key, text(now + c.ttl), token)
    if is_error(added) then return added end
    settle(c.key)
  elseif c.kind == 's' then
    local at = text(now + c.ttl)
    if not c.joins then
      local set = redis.pcall('SET', c.key, 'shared:' .. token, 'PXAT', at)
      if is_error(set) then return set end
      redis.pcall('DEL', c.set) -- readers of a marker that is gone
    end
    local added = redis.pcall('ZADD', c.set, at, token)
    if is_error(added) then return added end
    settle_readers(c)
  else
    local set = redis.pcall('SET', c.key, token, 'PX', c.ttl)
    if is_error(set) then return set end
    -- One that does not wait says nothing of those who do.
    if c.note and noted_for > 0 then forget(c.note) end
  end
end
return granted
