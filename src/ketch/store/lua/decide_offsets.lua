-- A transaction is decided: the offsets that it commits for a group count from now on, or go. See pend_offsets.lua.
--
-- KEYS    pending
-- ARGV    producer, started
--         keep   1: they are committed, and wait to be applied; 0: they go
-- Returns 1; 0 where there are none of this transaction, or they are committed already
local pending = KEYS[1]
local producer, started, keep = ARGV[1], ARGV[2], ARGV[3]
local known = redis.call('HGET', pending, producer)
if not known then return 0 end
local epoch, since, state, id = known:match('^(%S+) (%S+) (%S+) (.*)$')
if since ~= started then return 0 end
if keep == '1' then
  if state == 'committed' then return 0 end
  redis.call('HSET', pending, producer, epoch .. ' ' .. since .. ' committed ' .. id)
  return 1
end
for _, name in ipairs(redis.call('HKEYS', pending)) do
  if name == producer or name:sub(1, #producer + 1) == producer .. ':' then redis.call('HDEL', pending, name) end
end
return 1
