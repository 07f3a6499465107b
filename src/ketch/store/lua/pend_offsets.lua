-- Keeps the offsets that a transaction commits for a group until the transaction is decided (KIP-98).
--
-- A hash for each group. The field `<producer id>` says whose they are: `epoch started_ms open|committed transactional_id`.
-- The fields `<producer id>:<topic>:<partition>` are the offsets. What is left of an earlier transaction of the producer
-- was never decided, so it goes.
--
-- KEYS    pending
-- ARGV    producer, epoch, started, transactional_id
--         then names and values of the offsets' fields
-- Returns 1; 0 where an earlier transaction's offsets are committed and wait to be applied; -1 where a later one is here
local pending = KEYS[1]
local producer, epoch, started, transactional_id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local known = redis.call('HGET', pending, producer)
if known then
  local since, state = known:match('^%S+ (%S+) (%S+)')
  if tonumber(since) > tonumber(started) then return -1 end
  if state == 'committed' then return since == started and -1 or 0 end
  if since ~= started then
    for _, name in ipairs(redis.call('HKEYS', pending)) do
      if name == producer or name:sub(1, #producer + 1) == producer .. ':' then redis.call('HDEL', pending, name) end
    end
  end
end
redis.call('HSET', pending, producer, epoch .. ' ' .. started .. ' open ' .. transactional_id)
for i = 5, #ARGV, 2 do redis.call('HSET', pending, ARGV[i], ARGV[i + 1]) end
return 1
