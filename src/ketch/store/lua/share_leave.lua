-- A member of a share group has gone: what it holds is given up, as if it had not been delivered to it.
--
-- KEYS    stream
-- ARGV    group, member
--         available   the consumer that holds what anybody may claim
-- Returns how many deliveries were given up
-- include share_common
local stream, group, member, available = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local freed = 0
while true do
  local rows = redis.pcall('XPENDING', stream, group, '-', '+', 1000, member)
  if rows.err or #rows == 0 then break end
  undo(stream, group, available, rows)
  freed = freed + #rows
end
redis.pcall('XGROUP', 'DELCONSUMER', stream, group, member)
return freed
