-- Gives up what members of a share group have held for longer than they may.
--
-- KEYS    stream
-- ARGV    group
--         available   the consumer that holds what anybody may claim
--         lock        for how long a member may hold a delivery, ms
--         limit       how often a record is delivered at most
-- Returns how many deliveries were given up, how many are pending
-- include share_common
local stream = KEYS[1]
local group, available, lock, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local from, freed = '-', 0
repeat
  local pending, rows = redis.call('XPENDING', stream, group, 'IDLE', lock, from, '+', 1000), {}
  for i = 1, #pending do
    if pending[i][2] ~= available then rows[#rows + 1] = pending[i] end
  end
  freed = freed + release(stream, group, available, rows, limit)
  if #pending > 0 then from = '(' .. pending[#pending][1] end
until #pending < 1000
return {freed, redis.call('XPENDING', stream, group)[1]}
