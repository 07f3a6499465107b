-- A broker goes. It takes back only what it announced itself.
--
-- KEYS    brokers
-- ARGV    node (id), session
-- Returns 1; 0 where the entry is another broker's by now
local brokers = KEYS[1]
local node, session = ARGV[1], ARGV[2]
local held = redis.call('HGET', brokers, node)
if held and cjson.decode(held).session == session then return redis.call('HDEL', brokers, node) end
return 0
