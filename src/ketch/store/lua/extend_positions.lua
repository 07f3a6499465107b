-- Moves the end of a partition's byte log, and keeps places of it on the way, unless another broker was there first.
--
-- KEYS    positions
-- ARGV    expected   the end as the caller knows it, an id; "" where there are no positions yet
--         end        the new one
--         then, per place that is kept: its id, and the time of the record before it, ms
-- Returns the new end; else the end that another broker has stored
-- include last_id
local positions, expected, to = KEYS[1], ARGV[1], ARGV[2]
local last = last_id(positions)
if type(last) == 'table' then return last end
if (last or '') ~= expected then return last or '' end
for i = 3, #ARGV, 2 do redis.call('XADD', positions, ARGV[i], 'time', ARGV[i + 1]) end
redis.call('XSETID', positions, to)
return to
