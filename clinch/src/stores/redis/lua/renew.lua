-- Extends all claims of a token, or none; never shortens.
-- KEYS     the key of each claim
-- ARGV[1]  the token
-- ARGV[2…] the TTL of each claim in milliseconds
-- Returns 1, or 0 if a claim is no longer this token's.
for _, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return value end
  if value ~= ARGV[1] then return 0 end
end
for i, key in ipairs(KEYS) do
  local ttl = tonumber(ARGV[i + 1])
  if redis.call('PTTL', key) < ttl then
    local set = redis.pcall('PEXPIRE', key, ttl)
    if type(set) == 'table' then return set end
  end
end
return 1
