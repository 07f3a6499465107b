-- The end of a compaction: what it has kept takes the place of the stream, in one step.
--
-- It first takes over what was appended since the compaction read the stream's end: entries, the last-generated-id, and the
-- consumer groups with what is pending for them. Then it renames. Nothing is swapped where an entry was removed from the
-- stream meanwhile (by retention, XDEL, XTRIM), for the copy may hold it; nor where the copy is not whole.
--
-- entries-added becomes smaller by the entries that the compaction has removed: what Redis counts as trimmed stays the same,
-- and so does the lag that it reckons for groups.
--
-- Each delivery that is pending takes 4 to 7 microseconds. What carry_pending.lua has carried before, and has not changed
-- since, takes none.
--
-- KEYS    compaction (hash), stream, kept (stream), carried (hash), replaced (a free name)
-- ARGV    term
--         seen, last         entries of the stream that the compaction has looked at, and the id of the last of these
--         kept               entries in its copy
--         first_gone, last_gone   ids of the first and the last entry that it has left out
--         most               entries that may be copied here
--         most_pending       deliveries that may be carried here
--         fields and values of the compaction's state
-- Returns "done"; "more" where more entries have come than `most`; "pending" where more deliveries than `most_pending` have
--         to be carried; "changed" where the stream is not what was read; "overtaken" where another broker compacts the
--         partition by now
-- include last_id
-- include carried
local compaction, stream, kept, carried, replaced = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local term, seen, last, copied = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local first_gone, last_gone, most, most_pending = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
if redis.call('HGET', compaction, 'term') ~= term then return 'overtaken' end
local length = redis.call('XLEN', stream)
if length - seen > most then return 'more' end
local tail = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', most + 1)
if length ~= seen + #tail or redis.call('XLEN', kept) ~= copied then return 'changed' end
for i = 1, #tail do
  if #tail[i][2] > @WIDEST then return 'more' end
end
-- The native groups. For each consumer: up to which entry the copy has what is pending for it; false where some may be missing.
local groups, copied_groups, left, now = rows_of('GROUPS', stream), rows_of('GROUPS', kept), 0, now_ms()
for name, group in pairs(groups) do
  group.consumers, group.copied = {}, rows_of('CONSUMERS', kept, name)
  for each, consumer in pairs(rows_of('CONSUMERS', stream, name)) do
    local copy = group.copied[each]
    local upto = copy and carried_to(redis.call('HGET', carried, carried_field(name, each)), now, consumer)
    group.consumers[each] = upto or false
    if not upto then left = left + consumer.pending + (copy and copy.pending or 0) end
  end
end
if left > most_pending then return 'pending' end
for i = 1, #tail do redis.call('XADD', kept, tail[i][1], unpack(tail[i][2])) end
local at = pairs_of(redis.call('XINFO', 'STREAM', stream))
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
for name in pairs(copied_groups) do
  if not groups[name] then redis.call('XGROUP', 'DESTROY', kept, name) end
end
for name, group in pairs(groups) do
  local delivered, read = group['last-delivered-id'], group['entries-read']
  local words = {'XGROUP', copied_groups[name] and 'SETID' or 'CREATE', kept, name, delivered}
  -- Between the first and the last entry that is gone, Redis counts anew when the group gets to the end.
  if read and not below(delivered, last_gone) then words[6], words[7] = 'ENTRIESREAD', math.max(0, read - gone) end
  if read and below(delivered, first_gone) then words[6], words[7] = 'ENTRIESREAD', read end
  redis.call(unpack(words))
  for consumer in pairs(group.copied) do
    if not group.consumers[consumer] then redis.call('XGROUP', 'DELCONSUMER', kept, name, consumer) end
  end
  for consumer, upto in pairs(group.consumers) do
    if not upto then redis.call('XGROUP', 'CREATECONSUMER', kept, name, consumer) end
    local from = upto and '(' .. upto or '-'
    while from do from = carry(stream, kept, name, consumer, from, '+', 1000) end
  end
end
redis.call('RENAME', stream, replaced)
redis.call('RENAME', kept, stream)
redis.call('PERSIST', stream)
redis.call('UNLINK', replaced, carried)
redis.call('HSET', compaction, unpack(ARGV, 9))
return 'done'
