-- Which commands the user may run, without running any. ARGV: a list of commands, each as the number of its words and the
-- words. Answers with a list of 1 (allowed) and 0, or with nothing where the server cannot tell (before 7.0).
-- Commands must be whole: asked about an EVAL without its number of keys, Redis 7.0.15 crashes.
local check = redis.acl_check_cmd
if not check then return false end
local answers, i = {}, 1
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  -- A command that the server does not know is an error, and nothing that could be allowed.
  local known, allowed = pcall(check, unpack(ARGV, i + 1, i + words))
  answers[#answers + 1] = (known and allowed) and 1 or 0
  i = i + words + 1
end
return answers
