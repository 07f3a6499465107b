-- Gives a topic more partitions; it never has fewer.
--
-- KEYS    topic
-- ARGV    id (of the topic), partitions
-- Returns 1; 2 where it has as many already; 0 where the name belongs to another topic by now
local topic = KEYS[1]
local id, partitions = ARGV[1], ARGV[2]
if redis.call('HGET', topic, 'id') ~= id then return 0 end
if tonumber(redis.call('HGET', topic, 'partitions')) >= tonumber(partitions) then return 2 end
redis.call('HSET', topic, 'partitions', partitions)
return 1
