-- One step of a compaction before its swap: carries what is pending for a consumer of a native group to the copy.
--
-- KEYS    stream, kept (stream), carried (hash, see carried.lua)
-- ARGV    group, consumer
--         from       "-" to begin, else what the last step returned
--         most       deliveries that may be carried in this step
--         expires    ms after which the copy goes, where nobody goes on with it
-- Returns from where to go on; "" where there is nothing left
-- include last_id
-- include carried
local stream, kept, carried = KEYS[1], KEYS[2], KEYS[3]
local group, name, from, most, expires = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local field = carried_field(group, name)
local consumer, value = rows_of('CONSUMERS', stream, group)[name], redis.call('HGET', carried, field)
if not consumer then return '' end
if from == '-' then
  local now = now_ms()
  if carried_to(value, now, consumer) then return '' end
  redis.pcall('XGROUP', 'CREATE', kept, group, 0, 'MKSTREAM')
  redis.call('XGROUP', 'DELCONSUMER', kept, group, name)
  redis.call('XGROUP', 'CREATECONSUMER', kept, group, name)
  value = string.format('%.0f %.0f %s', now, consumer.pending, last_id(kept))
  redis.call('HSET', carried, field, value)
  redis.call('PEXPIRE', carried, expires)
  redis.call('PEXPIRE', kept, expires)
end
local upto = string.match(value, '%S+$')
return carry(stream, kept, group, name, from, upto, most) or ''
