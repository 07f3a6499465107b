-- Ends a producer's transaction on a partition: appends the marker and makes all changes that follow from it, in one step.
--
-- Redis chooses the marker's id, which takes one offset. The producer's epoch becomes the marker's, which fences batches
-- of the epochs before (KIP-890); this also happens where the producer has written nothing here, for a batch of it may
-- be on its way. A repeated marker finds no open transaction and changes nothing more. A marker that comes late, from a
-- coordinator that was paused, does not end the producer's next transaction, which began later.
--
-- KEYS    stream, producers, transactions, aborted
-- ARGV    producer, epoch       of the marker
--         started               ms, when the transaction began
--         now                   ms
--         aborts                1 to abort, 0 to commit
--         bits                  sequence bits of an offset
--         floor_ms, floor_seq   the least id of the marker
--         max_ms, max_seq       the largest id that a record may have
--         the fields and values of the marker's entry
-- Returns the marker's entry id and the last-generated-id before it; 0 where there is no transaction to end; -1 where
--         the producer has written here with a later epoch. An error, before anything is written, where the id would be beyond the largest one.
-- include last_id
-- include may
local stream, producers, transactions, aborted = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local producer, epoch, started, now, aborts = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local limit, floor_ms, floor_seq = 2 ^ tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local max_ms, max_seq = tonumber(ARGV[9]), tonumber(ARGV[10])
local fields_at = 11
local state = redis.call('HGET', producers, producer) or ''
local known = tonumber(state:match('^%S+') or '-1')
if known > epoch then return -1 end
local open = redis.call('HGET', transactions, producer)
if open and tonumber(open:match('%S+$')) > started then return 0 end
local id, before
local may_note = may('HDEL', transactions, producer) and may('HVALS', transactions)
if not (may_note and may('HSET', producers, producer, '')) then return lacks('hdel, hvals or hset') end
if open then
  before = last_id(stream) or '0-0'
  if type(before) == 'table' then return before end
  local ms, seq = numbers(before)
  seq = seq + 1
  ms, seq = ms + math.floor(seq / limit), seq % limit
  if ms < floor_ms or (ms == floor_ms and seq < floor_seq) then ms, seq = floor_ms, floor_seq end
  if ms > max_ms or (ms == max_ms and seq > max_seq) then
    return redis.error_reply("ERR @BEYOND (" .. stream .. ')')
  end
  id = string.format('%.0f-%.0f', ms, seq)
  redis.call('XADD', stream, id, unpack(ARGV, fields_at))
  redis.call('HDEL', transactions, producer)
  if aborts == '1' then
    for _, other in ipairs(redis.call('HVALS', transactions)) do
      local other_ms, other_seq = numbers(other)
      if other_ms and (other_ms < ms or (other_ms == ms and other_seq < seq)) then ms, seq = other_ms, other_seq end
    end
    local stable = string.format('%.0f-%.0f', ms, seq)
    redis.call('XADD', aborted, id, 'producer', producer, 'first', open:match('^%S+ (%S+)'), 'stable', stable)
  end
end
if epoch > known then
  redis.call('HSET', producers, producer, epoch .. ' -1 ' .. now)
elseif open then
  redis.call('HSET', producers, producer, (state:gsub('^(%S+ %S+) %S+', '%1 ' .. now)))
end
if not id then return 0 end
-- A write ends the tracking of its key (CLIENT TRACKING), and a read begins it again.
redis.pcall('XLEN', stream)
redis.pcall('HLEN', transactions)
redis.pcall('XLEN', aborted)
return {id, before}
