-- Forgets an idempotent producer that has not written for long, unless it writes at this moment, or its transaction is
-- open: the marker has to find the producer's epoch.
--
-- KEYS    producers, transactions
-- ARGV    producer, state (as it was read)
-- Returns 1; 0 where the state is another by now
local producers, transactions = KEYS[1], KEYS[2]
local producer, state = ARGV[1], ARGV[2]
if redis.call('HEXISTS', transactions, producer) == 1 then return 0 end
if redis.call('HGET', producers, producer) == state then return redis.call('HDEL', producers, producer) end
return 0
