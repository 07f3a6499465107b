-- The end of a compaction: what it has kept takes the place of the stream, in one step.
--
-- It first takes over what was appended since the compaction read the stream's end: entries, the last-generated-id, and the
-- consumer groups with what is pending for them. Then it renames. Nothing is swapped where an entry was removed from the
-- stream meanwhile (by retention, XDEL, XTRIM), for the copy may hold it; nor where the copy is not whole.
--
-- entries-added becomes smaller by the entries that the compaction has removed: what Redis counts as trimmed stays the same,
-- and so does the lag that it reckons for groups.
--
-- It takes 4 to 7 microseconds for each delivery that is pending; all else is bound by `most`.
--
-- KEYS    compaction (hash), stream, kept (stream), replaced (a free name)
-- ARGV    term
--         seen, last         entries of the stream that the compaction has looked at, and the id of the last of these
--         kept               entries in its copy
--         first_gone, last_gone   ids of the first and the last entry that it has left out
--         most               entries that may be copied here
--         fields and values of the compaction's state
-- Returns "done"; "more" where more entries have come than `most`; "changed" where the stream is not what was read; "overtaken"
--         where another broker compacts the partition by now
-- include last_id
local compaction, stream, kept, replaced = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local term, seen, last, copied = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local first_gone, last_gone, most = ARGV[5], ARGV[6], tonumber(ARGV[7])
if redis.call('HGET', compaction, 'term') ~= term then return 'overtaken' end
local length = redis.call('XLEN', stream)
if length - seen > most then return 'more' end
local tail = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', most + 1)
if length ~= seen + #tail or redis.call('XLEN', kept) ~= copied then return 'changed' end
for i = 1, #tail do
  if #tail[i][2] > @WIDEST then return 'more' end
end
for i = 1, #tail do redis.call('XADD', kept, tail[i][1], unpack(tail[i][2])) end
local info, at = redis.call('XINFO', 'STREAM', stream), {}
for k = 1, #info, 2 do at[info[k]] = info[k + 1] end
local gone = seen - copied
if at['entries-added'] then
  redis.call('XSETID', kept, at['last-generated-id'], 'ENTRIESADDED', at['entries-added'] - gone,
    'MAXDELETEDID', '0-0')
else
  redis.call('XSETID', kept, at['last-generated-id'])
end
-- below(a, b): whether id a is less than id b.
local function below(a, b)
  local ms, seq = numbers(a)
  local other_ms, other_seq = numbers(b)
  return ms < other_ms or (ms == other_ms and seq < other_seq)
end
-- claim(group, rows): makes deliveries pending that have the same consumer, idle time and number.
local function claim(group, rows)
  local ids = {}
  for i = 1, #rows do ids[i] = rows[i][1] end
  local words = {'XCLAIM', kept, group, rows[1][2], 0}
  for i = 1, #ids do words[#words + 1] = ids[i] end
  for _, word in ipairs({'IDLE', rows[1][3], 'RETRYCOUNT', rows[1][4], 'FORCE', 'JUSTID'}) do words[#words + 1] = word end
  redis.call(unpack(words))
end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = {}
  for k = 1, #row, 2 do group[row[k]] = row[k + 1] end
  local name, delivered, read = group.name, group['last-delivered-id'], group['entries-read']
  local words = {'XGROUP', 'CREATE', kept, name, delivered}
  -- Between the first and the last entry that is gone, Redis counts anew when the group gets to the end.
  if read and not below(delivered, last_gone) then words[6], words[7] = 'ENTRIESREAD', math.max(0, read - gone) end
  if read and below(delivered, first_gone) then words[6], words[7] = 'ENTRIESREAD', read end
  redis.call(unpack(words))
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, name)) do
    redis.call('XGROUP', 'CREATECONSUMER', kept, name, consumer[2])
  end
  local from = '-'
  repeat
    local pending, rows = redis.call('XPENDING', stream, name, from, '+', 1000), {}
    for i = 1, #pending do
      local other, one = rows[1], pending[i]
      if other and (other[2] ~= one[2] or other[3] ~= one[3] or other[4] ~= one[4]) then
        claim(name, rows)
        rows = {}
      end
      rows[#rows + 1] = one
    end
    if #rows > 0 then claim(name, rows) end
    if #pending > 0 then from = '(' .. pending[#pending][1] end
  until #pending < 1000
end
redis.call('RENAME', stream, replaced)
redis.call('RENAME', kept, stream)
redis.call('PERSIST', stream)
redis.call('UNLINK', replaced)
redis.call('HSET', compaction, unpack(ARGV, 8))
return 'done'
