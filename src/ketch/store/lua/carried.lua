-- Included by scripts that carry deliveries which are pending from a stream to the copy that will take its place.
--
-- The hash `carried` says for each consumer of a native group "began pending upto": when the carrying began (ms), how many
-- deliveries were pending for it then, and up to which entry they were carried, the last that the copy had.
--
-- pairs_of(row): a row of XINFO as a table.
local function pairs_of(row)
  local found = {}
  for k = 1, #row, 2 do found[row[k]] = row[k + 1] end
  return found
end
-- rows_of(...): the rows of XINFO GROUPS or CONSUMERS by name; none where there is no such stream or group.
local function rows_of(...)
  local found, rows = {}, redis.pcall('XINFO', ...)
  for i = 1, #rows do
    local row = pairs_of(rows[i])
    found[row.name] = row
  end
  return found
end
-- now_ms(): the time, ms since the epoch.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
-- carried_field(group, consumer): the field of `carried`.
local function carried_field(group, consumer)
  return #group .. ':' .. group .. consumer
end
-- carried_to(value, now, consumer): up to which entry the copy has what is pending for a consumer; nil where that may have
-- changed. It changes when the consumer reads or claims, which its idle time shows, and when others claim or acknowledge,
-- which makes it less.
local function carried_to(value, now, consumer)
  local began, pending, upto = string.match(value or '', '^(%d+) (%d+) (%S+)$')
  return began and consumer.pending == tonumber(pending) and consumer.idle > now - tonumber(began) and upto or nil
end
-- claim(kept, group, rows): makes deliveries pending that have the same consumer, idle time and number.
local function claim(kept, group, rows)
  if #rows == 0 then return end
  local words = {'XCLAIM', kept, group, rows[1][2], 0}
  for i = 1, #rows do words[#words + 1] = rows[i][1] end
  local idle, times = rows[1][3], rows[1][4]
  for _, word in ipairs({'IDLE', idle, 'RETRYCOUNT', times, 'FORCE', 'JUSTID'}) do words[#words + 1] = word end
  redis.call(unpack(words))
end
-- carry(stream, kept, group, consumer, from, to, most): makes up to so many deliveries pending in the copy; from where to go
-- on, or nil.
local function carry(stream, kept, group, consumer, from, to, most)
  local pending, rows = redis.call('XPENDING', stream, group, from, to, most, consumer), {}
  for i = 1, #pending do
    local other, one = rows[1], pending[i]
    if other and (other[3] ~= one[3] or other[4] ~= one[4]) then
      claim(kept, group, rows)
      rows = {}
    end
    rows[#rows + 1] = one
  end
  claim(kept, group, rows)
  return #pending == most and '(' .. pending[most][1] or nil
end
