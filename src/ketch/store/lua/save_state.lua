-- A coordinator replaces a state: a group's members, a transactional id's transaction.
--
-- KEYS    state      hash of what is coordinated, as a group's
-- ARGV    loaded, session, node, may_take   as in hold_state.lua
--         above      as there: with `loaded` the term rises with this write
--         then names and values of the fields
-- Returns as hold_state.lua does
-- include term
local state = KEYS[1]
local loaded, session, node, may_take, above = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local free, told = hold(state, loaded, session, node, may_take, above)
if not free then return {0, told} end
redis.call('DEL', state)
redis.call('HSET', state, 'term', told, 'session', session, 'broker', node)
-- As few commands for replicas and the append-only file as Lua's stack allows.
for i = 6, #ARGV, 1000 do redis.call('HSET', state, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return {1, told}
