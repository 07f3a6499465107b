-- XINFO STREAM of a stream of large entries: the first one alone is read, and its beginning returned.
--
-- KEYS    stream
-- ARGV    field, size
-- Returns what info.lua does, as far as it is used; there is no last entry in it
--
-- XINFO STREAM copies the first and the last entry, with FULL as many as are asked for, one at least.
local stream = KEYS[1]
local field, head_size = ARGV[1], tonumber(ARGV[2])
local info = redis.pcall('XINFO', 'STREAM', stream, 'FULL', 'COUNT', 1)
if info.err then return info end
local found = {'first-entry', false, 'last-entry', false}
for k = 1, #info, 2 do
  local name, value = info[k], info[k + 1]
  if name == 'length' or name == 'last-generated-id' or name == 'entries-added' then
    found[#found + 1] = name
    found[#found + 1] = value
  elseif name == 'entries' and #value > 0 then
    local words, size, head = value[1][2], 0, ''
    for j = 1, #words do size = size + #words[j] end
    for j = 1, #words, 2 do
      if words[j] == field then
        head = string.sub(words[j + 1], 1, head_size)
        break
      end
    end
    found[2] = {value[1][1], size, head}
  end
end
return found
