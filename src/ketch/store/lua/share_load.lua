-- Reads what is kept of a share group on a partition in the batch layout, and the time.
--
-- KEYS    shares (hash of all share groups on the partition)
-- ARGV    group
-- Returns the time, ms; the group's fields and values, without the group in the fields
local shares, group = KEYS[1], ARGV[1]
local time, found = redis.call('TIME'), {}
local all = redis.call('HGETALL', shares)
for i = 1, #all, 2 do
  local at, of = string.match(all[i], '^(%d*):(.*)$')
  if of == group then
    found[#found + 1] = at
    found[#found + 1] = all[i + 1]
  end
end
return {time[1] * 1000 + math.floor(time[2] / 1000), found}
