-- The append with ids chosen by Redis, for a stream that others write to as well: nothing can come between.
--
-- The ids follow the stream's last one, or begin at `floor` where that is later. An entry's id is that of the last of its
-- offsets. Milliseconds are below 2^53, which a Lua number holds exactly.
--
-- KEYS    stream, producers
-- ARGV    bits                  sequence bits of an offset
--         floor_ms, floor_seq   the least id of the first offset
--         per_entry             offsets of an entry
--         must_exist            1: none of this is written where there is no stream
--         max_ms, max_seq       the largest id that a record may have
--         words                 how many belong to an idempotent producer: 0 or 5
--         these: id, expected state, new head, now, batch (see producer.lua)
--         per entry the number of its fields and values, and these
-- Returns the id of the first offset; 0 where the producer's state or the stream is not what was expected; -1 where an
--         entry has more fields than unpack can take. An error, before anything is written, where the last offset would
--         be beyond the largest id.
-- include last_id
-- include producer
local stream, producers = KEYS[1], KEYS[2]
local limit, floor_ms, floor_seq = 2 ^ tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local per_entry, must_exist, max_ms, max_seq = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local words, producer, producer_state, head, now, batch = tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local entries_at = 9 + words
local last = last_id(stream)
if type(last) == 'table' then return last end
if must_exist == '1' and not last then return 0 end
if words > 0 and not producer_is(producers, producer, producer_state) then return 0 end
if words > 0 and not may_move(producers, producer) then return lacks('hset') end
local ms, seq = numbers(last or '0-0')
seq = seq + 1
ms, seq = ms + math.floor(seq / limit), seq % limit
if ms < floor_ms or (ms == floor_ms and seq < floor_seq) then ms, seq = floor_ms, floor_seq end
local entries, at = 0, entries_at
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  if count > @WIDEST then return -1 end
  at = at + 1 + count
  entries = entries + 1
end
local end_seq = seq + entries * per_entry - 1
local end_ms = ms + math.floor(end_seq / limit)
if end_ms > max_ms or (end_ms == max_ms and end_seq % limit > max_seq) then
  return redis.error_reply("ERR @BEYOND (" .. stream .. ')')
end
local first = string.format('%.0f-%.0f', ms, seq)
at = entries_at
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  seq = seq + per_entry - 1
  if seq >= limit then ms, seq = ms + math.floor(seq / limit), seq % limit end
  redis.call('XADD', stream, string.format('%.0f-%.0f', ms, seq), unpack(ARGV, at + 1, at + count))
  at = at + 1 + count
  seq = seq + 1
  if seq == limit then ms, seq = ms + 1, 0 end
end
if words > 0 then move_producer(producers, producer, head, now, batch, first) end
return first
