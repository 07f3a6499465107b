-- Included in place of producer.lua where the batch belongs to a transaction: it moves the partition's open transactions
-- along (KIP-98). The last of KEYS is the hash of these: a field for each producer with `epoch first_id started_ms`.
-- The batch is refused where its producer has no open transaction, unless it may open one (@OPENS is 1; @STARTED is then
-- when the transaction began, as its coordinator knows it). store/append/markers.py reads the same text.
-- include producer
local idempotent_is, may_move_idempotent, move_idempotent = producer_is, may_move, move_producer
local function producer_is(hash, id, expected)
  return idempotent_is(hash, id, expected) and (@OPENS == 1 or redis.call('HEXISTS', KEYS[#KEYS], id) == 1)
end
local function may_move(hash, id)
  return may_move_idempotent(hash, id) and (@OPENS == 0 or may('HSETNX', KEYS[#KEYS], id, ''))
end
local function move_producer(hash, id, head, now, batch, entry)
  if @OPENS == 1 then
    redis.call('HSETNX', KEYS[#KEYS], id, head:match('^%S+') .. ' ' .. entry .. ' ' .. (@STARTED or now))
    redis.pcall('HLEN', KEYS[#KEYS]) -- a write ends the tracking of its key, a read begins it again
  end
  move_idempotent(hash, id, head, now, batch, entry)
end
