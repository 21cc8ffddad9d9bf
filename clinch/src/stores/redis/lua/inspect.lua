-- Who holds these keys.
-- KEYS     the keys
-- Returns for each key {its value, its time left in milliseconds}, or an empty table if it is free or no lease.
local holders = {}
for i, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then
    holders[i] = {value, redis.call('PTTL', key)}
  elseif type(value) == 'table' and #KEYS == 1 then
    return value -- asked for this very key, which is no lease
  else
    holders[i] = {}
  end
end
return holders
