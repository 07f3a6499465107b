-- A coordinator asks for the term in which it may write what belongs to a state: a group's commits.
--
-- KEYS    state      hash of what is coordinated, as a group's
-- ARGV    loaded     term in which the state was loaded; 0 where there was none
--         session, node
--         may_take   1 where the term may be taken from another session, else 0
--         above      a term to be higher than
-- Returns {1, term}; {0, the session that holds the state} where it has been written since it was loaded
-- include term
local state = KEYS[1]
local loaded, session, node, may_take, above = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local free, told = hold(state, loaded, session, node, may_take, above)
return {free and 1 or 0, told}
