-- The first command of an append with ids chosen by the caller: MULTI, GUARD, XADD of every entry, RELEASE, EXEC.
--
-- It lets the batch through if the stream ends where its ids were chosen to follow. Where it refuses, the XADDs after it
-- in the transaction must fail too, all of them: so it moves the stream's last-generated-id past the batch (or puts a
-- string in place of a missing stream), and RELEASE undoes that. It also sets the fence: batches of this broker that are
-- already pipelined after the refused one are refused as well, for they must not overtake it.
--
-- An error of its own is no different: Redis would go on with the XADDs. And where the user may not run MULTI, there is
-- no transaction: Redis runs these commands one by one, which comes to the same as a batch refused here.
--
-- KEYS    stream, producers, fence
-- ARGV    expected   last-generated-id that the ids follow; "" for any below `first`
--         first      id of the first offset
--         end_ms, end_seq   id of the last entry
--         then, of an idempotent producer: id, expected state, new head, now, batch (see producer.lua)
-- Returns 1; 0 where the batch is refused; an error, with nothing stored
-- include last_id
-- include producer
local stream, producers, fence = KEYS[1], KEYS[2], KEYS[3]
local expected, first, end_ms, end_seq = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local producer, producer_state, head, now, batch = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local known, missing -- the stream's last-generated-id, '0-0' where there is no stream; whether there is none
local function follows(last)
  if expected == '' and last then
    local ms, seq = numbers(last)
    local first_ms, first_seq = numbers(first)
    return ms < first_ms or (ms == first_ms and seq < first_seq)
  end
  return known == expected
end
local function passes()
  local last = last_id(stream)
  if type(last) == 'table' then return last end
  known, missing = last or '0-0', not last
  if not may('MULTI') then return lacks('multi') end
  if not follows(last) or redis.call('EXISTS', fence) == 1 then return 0 end
  if producer and not producer_is(producers, producer, producer_state) then return 0 end
  if producer then move_producer(producers, producer, head, now, batch, first) end
  return 1
end
local ran, answer = pcall(passes)
if not ran and type(answer) == 'string' then answer = redis.error_reply(answer) end -- Redis before 7.0
if answer == 1 then return 1 end
redis.pcall('SET', fence, known or 'up', 'PX', 60000)
if missing == nil then missing = redis.call('TYPE', stream).ok == 'none' end
if missing then
  redis.call('SET', stream, '')
elseif known or redis.call('XLEN', stream) > 0 then -- an end that could not be read stays where it is put: a gap
  local ms, seq = numbers(known or '0-0')
  local to_ms, to_seq = tonumber(end_ms), tonumber(end_seq)
  if ms < to_ms or (ms == to_ms and seq < to_seq) then redis.pcall('XSETID', stream, end_ms .. '-' .. end_seq) end
end
return answer
