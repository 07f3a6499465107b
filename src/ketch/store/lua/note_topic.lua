-- Writes a field that Ketch itself keeps in a topic's hash.
--
-- KEYS    topic
-- ARGV    id (of the topic), field, value
-- Returns nothing; writes nothing where the name belongs to another topic by now
local topic = KEYS[1]
local id, field, value = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', topic, 'id') == id then redis.call('HSET', topic, field, value) end
