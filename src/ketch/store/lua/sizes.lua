-- How far into a stream so many bytes of entries reach.
--
-- KEYS    stream
-- ARGV    first, most (entries), bytes
-- Returns the id of the last of the entries from `first` on that take so many bytes, "" where there is none; their bytes
local stream = KEYS[1]
local first, most, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3])
local id, total = '', 0
for _, entry in ipairs(redis.call('XRANGE', stream, first, '+', 'COUNT', most)) do
  if total >= bytes then break end
  id = entry[1]
  for j = 1, #entry[2] do total = total + #entry[2][j] end
end
return {id, total}
