-- Included by the scripts of share groups in the record layout, where a share group is a native group.
--
-- in_steps(ids, call): calls with at most 1,000 of the ids at a time.
local function in_steps(ids, call)
  for from = 1, #ids, 1000 do call({unpack(ids, from, math.min(from + 999, #ids))}) end
end
-- settle(stream, group, ids): acknowledges deliveries. How many there were.
local function settle(stream, group, ids)
  local count = 0
  in_steps(ids, function(some) count = count + redis.call('XACK', stream, group, unpack(some)) end)
  return count
end
-- give_up(stream, group, available, ids, ...): gives deliveries to the consumer that holds what anybody may claim. They are
-- idle for as long as can be, so that XAUTOCLAIM finds them at once.
local function give_up(stream, group, available, ids, ...)
  local more = {...}
  in_steps(ids, function(some)
    local words = {'XCLAIM', stream, group, available, 0}
    for i = 1, #some do words[#words + 1] = some[i] end
    for _, word in ipairs({'TIME', 0, 'JUSTID'}) do words[#words + 1] = word end
    for i = 1, #more do words[#words + 1] = more[i] end
    redis.call(unpack(words))
  end)
end
-- release(stream, group, available, rows, limit): gives up rows of XPENDING; those that were delivered as often as may be are
-- acknowledged. How many were given up.
local function release(stream, group, available, rows, limit)
  local again, spent = {}, {}
  for i = 1, #rows do
    local ids = rows[i][4] < limit and again or spent
    ids[#ids + 1] = rows[i][1]
  end
  give_up(stream, group, available, again)
  settle(stream, group, spent)
  return #again
end
-- undo(stream, group, available, rows): gives up rows of XPENDING, as if they had not been delivered this time.
local function undo(stream, group, available, rows)
  local counted = {}
  for i = 1, #rows do
    local count = math.max(rows[i][4] - 1, 0)
    counted[count] = counted[count] or {}
    table.insert(counted[count], rows[i][1])
  end
  for count, ids in pairs(counted) do give_up(stream, group, available, ids, 'RETRYCOUNT', count) end
end
