-- Ends one holder's lease by force, tells its manager, and wakes those who wait.
-- KEYS[1]  the key
-- ARGV[1]  the token of the holder that was seen
-- ARGV[2]  the key's channel
-- ARGV[3]  the channel of revocations
-- Returns 1, or 0 if this token no longer holds the key.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local deleted = redis.pcall('DEL', KEYS[1])
if type(deleted) == 'table' then return deleted end
redis.pcall('PUBLISH', ARGV[3], KEYS[1] .. '\n' .. ARGV[1])
redis.pcall('PUBLISH', ARGV[2], '')
return 1
