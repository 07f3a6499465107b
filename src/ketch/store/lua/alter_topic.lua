-- Changes a topic's configs.
--
-- KEYS    topic
-- ARGV    id (of the topic), then field, value, ...; an empty value takes the field away
-- Returns 1; 0 where the name belongs to another topic by now
local topic = KEYS[1]
local id = ARGV[1]
if redis.call('HGET', topic, 'id') ~= id then return 0 end
for i = 2, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then redis.call('HDEL', topic, field) else redis.call('HSET', topic, field, value) end
end
return 1
