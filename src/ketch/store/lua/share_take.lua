-- Delivers to a member of a share group what others have given up.
--
-- KEYS    stream
-- ARGV    group, member
--         available   the consumer that holds what anybody may claim
--         most        entries
--         limit       how often a record is delivered at most
-- Returns "id count id count ...", the entries as XRANGE would return them. Those whose entries are gone from the stream, and
--         those that were delivered too often, are acknowledged.
-- include share_common
local stream = KEYS[1]
local group, member, available, most, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local rows, ids, counts, spent = redis.call('XPENDING', stream, group, '-', '+', most, available), {}, {}, {}
for i = 1, #rows do
  local id, count = rows[i][1], rows[i][4]
  counts[id] = count + 1
  if count < limit then ids[#ids + 1] = id else spent[#spent + 1] = id end
end
local entries, told = {}, {}
in_steps(ids, function(some)
  local claimed, there = redis.call('XCLAIM', stream, group, member, 0, unpack(some)), {}
  for i = 1, #claimed do
    local entry = claimed[i]
    if entry and entry[2] then
      entries[#entries + 1] = entry
      there[entry[1]] = true
      told[#told + 1] = entry[1] .. ' ' .. counts[entry[1]]
    end
  end
  for i = 1, #some do
    if not there[some[i]] then spent[#spent + 1] = some[i] end
  end
end)
settle(stream, group, spent)
return {table.concat(told, ' '), entries}
