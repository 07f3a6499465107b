-- The append, with an id chosen by the caller, of a batch that is one entry, which XADD takes or refuses as a whole.
--
-- It needs no last-generated-id, for which XINFO would hand Lua two entries of up to a megabyte. In a stream that is not
-- empty nothing above the expected id can have been trimmed, since older entries go first; for an empty stream XINFO
-- answers no entries. Another client may add an entry and remove it by XDEL: this script does not see that, but Redis
-- pushes it to the broker (`AppendState.others_wrote`).
--
-- KEYS    stream, producers, fence
-- ARGV    expected   last-generated-id that the entry follows
--         entry      its id
--         words      how many belong to an idempotent producer: 0 or 6
--         these: id, expected state, new head, now, batch (see producer.lua), id of the first offset
--         the entry's fields and values
-- Returns 1; 0 where the batch is refused
-- include last_id
-- include producer
local stream, producers, fence = KEYS[1], KEYS[2], KEYS[3]
local expected, entry, words = ARGV[1], ARGV[2], tonumber(ARGV[3])
local producer, producer_state, head, now, batch, first = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local fields = 4 + words
local function refuse()
  redis.call('SET', fence, 'up', 'PX', 60000)
  return 0
end
if redis.call('EXISTS', fence) == 1 then return 0 end
if words > 0 and not may_move(producers, producer) then return lacks('hset') end
if words > 0 and not producer_is(producers, producer, producer_state) then return refuse() end
if expected ~= '0-0' and redis.call('EXISTS', stream) == 0 then return refuse() end
local above = redis.pcall('XRANGE', stream, '(' .. expected, '+', 'COUNT', 1)
if above.err then return above end
if #above > 0 then return refuse() end
if redis.call('XLEN', stream) == 0 and (last_id(stream) or '0-0') ~= expected then return refuse() end
local added = redis.pcall('XADD', stream, entry, unpack(ARGV, fields))
if type(added) == 'table' and added.err then
  return string.find(added.err, 'equal or smaller') and refuse() or added
end
if words > 0 then move_producer(producers, producer, head, now, batch, first) end
redis.pcall('XLEN', stream)
return 1
