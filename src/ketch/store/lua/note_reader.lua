-- Notes how far a streaming query of Spark has read a partition, beside the states of those who write to it.
--
-- KEYS    stream, producers
-- ARGV    name, batch (number of the micro-batch), through (offset behind what was read), now (ms)
-- Returns 1; 0 where there is no stream (any more), so that nothing is left of a topic that was deleted
--
-- Several tasks of a micro-batch may read one partition: the furthest counts, whichever ends last.
local stream, producers = KEYS[1], KEYS[2]
local name, batch, through, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', stream) == 0 then return 0 end
local known_batch, known = string.match(redis.call('HGET', producers, name) or '', '^(%d+) (%d+) ')
if known_batch == batch and tonumber(known) > tonumber(through) then through = known end
redis.call('HSET', producers, name, batch .. ' ' .. through .. ' ' .. now)
return 1
