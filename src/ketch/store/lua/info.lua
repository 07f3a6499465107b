-- XINFO STREAM without the bytes of its first and last entry, which may be a megabyte each.
--
-- KEYS    stream
-- ARGV    field, size
-- Returns XINFO STREAM's reply, each entry in it as its id, the bytes in it, and the first `size` bytes of `field`
local stream = KEYS[1]
local field, head_size = ARGV[1], tonumber(ARGV[2])
local info = redis.pcall('XINFO', 'STREAM', stream)
if info.err then return info end
for k = 2, #info, 2 do
  local entry = info[k]
  if type(entry) == 'table' then
    local id, words, size, head = entry[1], entry[2], 0, ''
    for j = 1, #words do size = size + #words[j] end
    for j = 1, #words, 2 do
      if words[j] == field then
        head = string.sub(words[j + 1], 1, head_size)
        break
      end
    end
    info[k] = {id, size, head}
  end
end
return info
