-- Writes fields of a compaction's state and keeps its lease, or gives it back.
--
-- KEYS    compaction (hash)
-- ARGV    term          nothing is written in another one
--         lease (ms)    0 gives it back
--         fields and values
-- Returns 1; 0 where another broker compacts the partition by now, or the topic is gone
local compaction = KEYS[1]
local term, lease = ARGV[1], tonumber(ARGV[2])
if redis.call('HGET', compaction, 'term') ~= term then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', compaction, 'until', string.format('%.0f', lease > 0 and now + lease or 0), unpack(ARGV, 3))
return 1
