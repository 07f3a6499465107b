-- Counts entries.
--
-- KEYS    stream
-- ARGV    first, last, most
-- Returns how many entries there are in the range, `most` at most; the id of the last of these, "" where there is none
local stream = KEYS[1]
local first, last, most = ARGV[1], ARGV[2], ARGV[3]
local entries = redis.call('XRANGE', stream, first, last, 'COUNT', most)
return {#entries, #entries > 0 and entries[#entries][1] or ''}
