-- Delivers entries to a member of a share group that it has chosen among those which were never delivered.
--
-- KEYS    stream
-- ARGV    group, member
--         from        the group's position as it was
--         to          its next position
--         passed      entries between them; "" where that is not known
--         ids of the entries to deliver
-- Returns 1; 0 where the group stands elsewhere by now, and nothing is delivered
-- include share_common
-- include share_state
local stream = KEYS[1]
local group, member, from, to, passed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local state = state_of(stream, group)
if not state or state['last-delivered-id'] ~= from then return 0 end
in_steps({unpack(ARGV, 6)}, function(some)
  local words = {'XCLAIM', stream, group, member, 0}
  for i = 1, #some do words[#words + 1] = some[i] end
  for _, word in ipairs({'RETRYCOUNT', 1, 'FORCE', 'JUSTID'}) do words[#words + 1] = word end
  redis.call(unpack(words))
end)
local words = {'XGROUP', 'SETID', stream, group, to}
if state['entries-read'] and passed then words[6], words[7] = 'ENTRIESREAD', state['entries-read'] + passed end
redis.call(unpack(words))
return 1
