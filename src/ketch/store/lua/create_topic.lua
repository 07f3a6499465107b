-- The first step of a topic's creation: its hash.
--
-- KEYS    topic
-- ARGV    field, value, ...; the first pair is the id, which decides a race
-- Returns 1; 0 where there is a hash already
local topic = KEYS[1]
if redis.call('HSETNX', topic, ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('HSET', topic, unpack(ARGV))
return 1
