-- Writes what has changed of a share group on a partition in the batch layout, where nobody else has changed it.
--
-- KEYS    shares (hash of all share groups on the partition)
-- ARGV    group
--         version     that was read, or written last; 0: the group was not there
--         next        the first offset that was never delivered
--         gone        how many first offsets of ranges follow that are there no more; these; then first offsets and ranges
-- Returns the time, ms, and the new version; 0 and 0 where the version is another one, and nothing is written.
--
-- The first version is the time: a group that is removed and made again must not reach a version that a broker remembers.
local shares, group, version, following, gone = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local head = ':' .. group
local known = redis.call('HGET', shares, head)
if (known and string.match(known, '^%d+') or '0') ~= version then return {0, 0} end
for i = 5, 4 + gone, 1000 do
  local fields = {}
  for k = i, math.min(i + 999, 4 + gone) do fields[#fields + 1] = ARGV[k] .. head end
  redis.call('HDEL', shares, unpack(fields))
end
for i = 5 + gone, #ARGV, 1000 do
  local words = {}
  for k = i, math.min(i + 999, #ARGV), 2 do
    words[#words + 1] = ARGV[k] .. head
    words[#words + 1] = ARGV[k + 1]
  end
  redis.call('HSET', shares, unpack(words))
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local new = known and version + 1 or now
redis.call('HSET', shares, head, string.format('%.0f', new) .. ' ' .. following)
return {now, new}
