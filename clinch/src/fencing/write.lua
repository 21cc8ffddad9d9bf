-- Writes a value unless a higher fence was here before.
-- KEYS[1]  a hash: `value`, and `fence`, the highest so far in decimal
-- ARGV[1]  the fence, in decimal without leading zeros
-- ARGV[2]  the value
-- ARGV[3]  its time to live in milliseconds, or ''
-- Returns nil if the value was written, else the higher fence.
--
-- Fences are beyond 2^53, where Lua's numbers are not exact any more: they are compared as texts, and the longer one is
-- the higher one. `pcall` keeps the codes of errors on Redis 6.2.
local function is_error(answer) return type(answer) == 'table' and answer.err ~= nil end

local highest = redis.pcall('HGET', KEYS[1], 'fence')
if is_error(highest) then return highest end
if highest then
  local offered, digits = ARGV[1], string.match(highest, '^0*(%d+)$')
  if not digits then return redis.error_reply('ERR the `fence` of this hash is not a number') end
  if #offered < #digits or (#offered == #digits and offered < digits) then return digits end
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('ERR this hash has no `fence`: something else wrote it')
end

local written = redis.pcall('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
if is_error(written) then return written end
if ARGV[3] == '' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return false
