-- Grants one exclusive claim without a fence, by far the most common attempt: on a free key look and write are one
-- command.
-- KEYS[1]  the key
-- KEYS[2]  for an attempt that waits: the note on who comes next. It is the token of a writer that new readers let go first; or,
--          with a '>' before it, what is said of an heir, to whom the holder hands the key over: how long the key is kept for it,
--          the moment at which it asked, and its token; or '!': several wait, or one that cannot inherit, so nobody does, and of
--          those who are woken the first to ask has the key. Else who comes back at once would be next before those who wait
-- ARGV[1]  the token
-- ARGV[2]  the TTL in milliseconds
-- ARGV[3]  for an attempt that waits: how long its note is good, in milliseconds; 0: there is to be none
-- ARGV[4]  for one that can inherit: the same for its note as an heir
-- ARGV[5]  what is said of it there before its token
-- Returns 0, or {the key's value, its time left in milliseconds}.
local set = redis.pcall('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if set and set.err then return set end
if set then
  -- Whomever the note is of, it has done its work; but several go on waiting.
  local note = KEYS[2] and redis.pcall('GET', KEYS[2])
  if note and note ~= '!' then redis.pcall('DEL', KEYS[2]) end
  return 0
end
-- `pcall`, so that a key of another type is reported with its own error code on every server version.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then
  -- If it was handed over, it was only kept; now it is taken.
  if ARGV[4] then
    local kept = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
    if type(kept) == 'table' then return kept end
  end
  return 0
end
-- Without memory there is no note, and the denial stands all the same.
if value and KEYS[2] and ARGV[3] ~= '0' then
  if string.sub(value, 1, 7) == 'shared:' then
    redis.pcall('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
  else
    local note = redis.pcall('GET', KEYS[2])
    local sign = type(note) == 'string' and string.sub(note, 1, 1)
    if not ARGV[4] or sign == '>' and string.sub(note, -#ARGV[1]) ~= ARGV[1] then
      redis.pcall('SET', KEYS[2], '!', 'PX', ARGV[3])
    elseif sign ~= '!' then
      redis.pcall('SET', KEYS[2], '>' .. ARGV[5] .. ARGV[1], 'PX', ARGV[4])
    end
  end
end
return {value or '', redis.call('PTTL', KEYS[1])}
