-- Acknowledges what is pending for a group in a range of entries.
--
-- KEYS    stream
-- ARGV    group, first, last
-- Returns how many deliveries are pending after that
local stream = KEYS[1]
local group, first, last = ARGV[1], ARGV[2], ARGV[3]
repeat
  local pending = redis.call('XPENDING', stream, group, first, last, 1000)
  local ids = {}
  for i = 1, #pending do ids[i] = pending[i][1] end
  if #ids > 0 then redis.call('XACK', stream, group, unpack(ids)) end
until #pending < 1000
return redis.call('XPENDING', stream, group)[1]
