-- The first command of an append with ids chosen by the caller: MULTI, GUARD, XADD of every entry, RELEASE, EXEC.
--
-- It lets the batch through if the stream ends where its ids were chosen to follow. Where it refuses, the XADDs after it
-- in the transaction must fail too, all of them: so it moves the stream's last-generated-id past the batch (or puts a
-- string in place of a missing stream), and RELEASE undoes that. It also sets the fence: batches of this broker that are
-- already pipelined after the refused one are refused as well, for they must not overtake it.
--
-- KEYS    stream, producers, fence
-- ARGV    expected   last-generated-id that the ids follow; "" for any below `first`
--         first      id of the first offset
--         end_ms, end_seq   id of the last entry
--         then, of an idempotent producer: id, expected state, new head, now, batch (see producer.lua)
-- Returns 1; 0 where the batch is refused
-- include last_id
-- include producer
local stream, producers, fence = KEYS[1], KEYS[2], KEYS[3]
local expected, first, end_ms, end_seq = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local producer, producer_state, head, now, batch = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local last = last_id(stream)
if type(last) == 'table' then return last end
local known = last or '0-0'
local ms, seq = numbers(known)
local free = known == expected
if expected == '' and last then
  local first_ms, first_seq = numbers(first)
  free = ms < first_ms or (ms == first_ms and seq < first_seq)
end
if free and redis.call('EXISTS', fence) == 0 and (not producer or producer_is(producers, producer, producer_state)) then
  if producer then move_producer(producers, producer, head, now, batch, first) end
  return 1
end
redis.call('SET', fence, known, 'PX', 60000)
if not last then
  redis.call('SET', stream, '')
  return 0
end
local to_ms, to_seq = tonumber(end_ms), tonumber(end_seq)
if ms < to_ms or (ms == to_ms and seq < to_seq) then redis.call('XSETID', stream, end_ms .. '-' .. end_seq) end
return 0
