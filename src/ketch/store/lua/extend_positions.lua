-- Moves the end of a partition's byte log, and keeps places of it on the way, unless another broker was there first.
--
-- KEYS    positions
-- ARGV    expected   the end as the caller knows it, an id; "" where there are no positions yet
--         end        the new one
--         magic      the usual one of plain messages between the two
--         time       of the record before the new end, ms
--         then, per place that is kept: its id, and the time of the record before it, ms
-- Returns the new end; else the end that another broker has stored
--
-- Where the last place that is kept says another magic, the first one after it says since where that has changed. The
-- new end becomes a place for that, if no other one does.
-- include last_id
local positions, expected, to, magic = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local last = last_id(positions)
if type(last) == 'table' then return last end
if (last or '') ~= expected then return last or '' end
local since = {}
local newest = redis.call('XREVRANGE', positions, '+', '-', 'COUNT', 1)[1]
if newest then
  local usual = '0'
  for i = 1, #newest[2], 2 do
    if newest[2][i] == 'magic' then usual = newest[2][i + 1] end
  end
  if usual ~= magic then since = {'since', expected} end
end
if #since > 0 and #ARGV == 4 then
  redis.call('XADD', positions, to, 'time', ARGV[4], 'magic', magic, unpack(since))
end
for i = 5, #ARGV, 2 do
  redis.call('XADD', positions, ARGV[i], 'time', ARGV[i + 1], 'magic', magic, unpack(since))
  since = {}
end
redis.call('XSETID', positions, to)
return to
