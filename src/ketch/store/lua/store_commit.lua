-- Stores a committed offset, unless one of a later term is there.
--
-- KEYS    commit, its term
-- ARGV    term, offset
-- Returns nil; the later term where it is not stored
-- include commit_term
local commit, commit_term = KEYS[1], KEYS[2]
local term, offset = ARGV[1], ARGV[2]
local newer, known = later(commit_term, term)
if newer then return newer end
if not known then redis.call('SET', commit_term, term) end
redis.call('SET', commit, offset)
return false
