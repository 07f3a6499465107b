-- Deletes a state, unless it has been written since its term was held.
--
-- KEYS    state      hash of what is coordinated, as a group's
-- ARGV    term       that HOLD gave
-- Returns 1; 0 where the state is in another term
local state, term = KEYS[1], ARGV[1]
if redis.call('HGET', state, 'term') ~= term then return 0 end
redis.call('DEL', state)
return 1
