-- The entries of a range without their records: what counting needs.
--
-- KEYS    stream
-- ARGV    command       XRANGE or XREVRANGE
--         first, last   as that command takes them
--         most          entries
-- Returns per entry its id and how many records it holds: a batch's count (bytes 58 to 61 of a record batch), 1 for an entry
--         that is one record
local stream = KEYS[1]
local command, first, last, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local heads = {}
for i, entry in ipairs(redis.call(command, stream, first, last, 'COUNT', most)) do
  local id, words, records = entry[1], entry[2], 1
  for j = 1, #words, 2 do
    if words[j] == 'batch' and #words[j + 1] >= 61 then
      local a, b, c, d = string.byte(words[j + 1], 58, 61)
      if a < 128 then records = math.max(1, ((a * 256 + b) * 256 + c) * 256 + d) end
      break
    end
  end
  heads[i] = {id, records}
end
return heads
