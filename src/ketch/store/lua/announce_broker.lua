-- A broker says that it is alive. Times are Redis's own, so the brokers' clocks need not agree.
--
-- KEYS    brokers
-- ARGV    node (id), host, port, session, timeout (ms of silence after which a node id is free),
--         listeners (a JSON array of name, protocol, host, port)
-- Returns {1, now in ms, HGETALL of all brokers}; {0, now, the entry of a live broker that has this node id}.
--         Brokers that were silent for a day are forgotten.
local brokers = KEYS[1]
local node, host, port, session, timeout = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HGET', brokers, node)
if held then
  local holder = cjson.decode(held)
  local same = holder.session == session or (holder.host == host and holder.port == port)
  if not same and now - holder.seen < timeout then return {0, now, held} end
end
redis.call('HSET', brokers, node, cjson.encode({
  host = host, port = port, session = session, seen = now, listeners = cjson.decode(ARGV[6])
}))
local all = redis.call('HGETALL', brokers)
for i = 2, #all, 2 do
  if now - cjson.decode(all[i]).seen > 86400000 then redis.call('HDEL', brokers, all[i - 1]) end
end
return {1, now, all}
