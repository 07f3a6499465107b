-- Looks at a share group in the record layout.
--
-- KEYS    stream
-- ARGV    group
--         available   the consumer that holds what anybody may claim
-- Returns "position pending available read": the last-delivered-id, how many deliveries are pending, whether some are
--         available (1 or 0), entries-read ("-" where Redis does not know it); "" where there is no such group
-- include share_state
local stream, group, available = KEYS[1], ARGV[1], ARGV[2]
local state = state_of(stream, group)
if not state then return '' end
local free = state.pending > 0 and #redis.call('XPENDING', stream, group, '-', '+', 1, available) or 0
return state['last-delivered-id'] .. ' ' .. state.pending .. ' ' .. free .. ' ' .. (state['entries-read'] or '-')
