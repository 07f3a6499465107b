-- Makes a broker the one that compacts a partition, unless another one does at this moment.
--
-- KEYS    compaction (hash)
-- ARGV    session, lease (ms)
-- Returns the term, which rises with every beginning; 0 where another session holds the lease
local compaction = KEYS[1]
local session, lease = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', compaction, 'holder', 'until')
if held[1] and held[1] ~= session and (tonumber(held[2]) or 0) > now then return 0 end
redis.call('HSET', compaction, 'holder', session, 'until', string.format('%.0f', now + lease))
return redis.call('HINCRBY', compaction, 'term', 1)
