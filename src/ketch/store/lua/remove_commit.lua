-- Removes a committed offset, unless it is of a later term.
--
-- KEYS    commit, its term
-- ARGV    term
-- Returns nil; the later term where it is not removed
-- include commit_term
local commit, commit_term, term = KEYS[1], KEYS[2], ARGV[1]
local newer = later(commit_term, term)
if newer then return newer end
redis.call('DEL', commit, commit_term)
return false
