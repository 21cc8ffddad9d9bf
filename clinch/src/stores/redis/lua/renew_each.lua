-- Extends all claims of each lease, or none of it; never shortens one. The leases have nothing to do with each other.
-- KEYS     those of each claim of each lease
-- ARGV     for each lease: the token, how many claims it has, and for each claim its kind and its TTL in milliseconds
-- Returns for each lease 1, 0 if a claim is no longer this token's, or the text of an error.
local function lost(c, token)
  if c.kind == 'p' then
    local at, failed = ends(c.key, token)
    c.ends = at
    return failed or at <= now
  elseif c.kind == 's' then
    local live, failed, at = reads(c, token)
    c.ends = at
    return failed or not live
  end
  local value = redis.pcall('GET', c.key)
  if is_error(value) then return value end
  return value ~= token
end

local function extend(c, token)
  local set = c.set or c.kind == 'p' and c.key
  if not set then
    if redis.call('PTTL', c.key) < c.ttl then return redis.pcall('PEXPIRE', c.key, c.ttl) end
  elseif c.ends < now + c.ttl then
    -- The expiry first: it needs no memory, and after it the score needs none either.
    local _, at = last(set)
    local kept = redis.pcall('PEXPIREAT', set, text(math.max(at, now + c.ttl)))
    if is_error(kept) then return kept end
    local added = redis.pcall('ZADD', set, 'XX', text(now + c.ttl), token)
    if is_error(added) then return added end
    if c.kind == 's' then settle_readers(c) else settle(set) end
  end
end

local function renew()
  local token, claims = arg(), {}
  for i = 1, tonumber(arg()) do
    claims[i] = claim()
    claims[i].ttl = tonumber(arg())
  end
  for _, c in ipairs(claims) do
    local gone = lost(c, token)
    if is_error(gone) then return gone.err end
    if gone then return 0 end
  end
  for _, c in ipairs(claims) do
    local done = extend(c, token)
    if is_error(done) then return done.err end
  end
  return 1
end

local answers = {}
while next_arg < #ARGV do
  answers[#answers + 1] = renew()
end
return answers
