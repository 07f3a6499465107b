-- Forgets an idempotent producer that has not written for long, unless it writes at this moment.
--
-- KEYS    producers
-- ARGV    producer, state (as it was read)
-- Returns 1; 0 where the state is another by now
local producers = KEYS[1]
local producer, state = ARGV[1], ARGV[2]
if redis.call('HGET', producers, producer) == state then return redis.call('HDEL', producers, producer) end
return 0
