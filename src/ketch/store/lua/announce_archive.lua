-- The archive job says what a topic's table holds. An announcement never replaces a later one.
--
-- KEYS    archive
-- ARGV    updated (ms), id (of the topic), then field, value, ...
-- Returns 1; 0 where a later announcement is there already
local archive = KEYS[1]
local updated, id = ARGV[1], ARGV[2]
local known = redis.call('HMGET', archive, 'updated', 'topic-id')
if known[2] and known[2] ~= id then
  redis.call('DEL', archive)
elseif known[1] and tonumber(known[1]) > tonumber(updated) then
  return 0
end
redis.call('HSET', archive, 'updated', updated, 'topic-id', id, unpack(ARGV, 3))
return 1
