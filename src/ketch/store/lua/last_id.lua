-- Included by scripts whose KEYS[1] is a stream.
-- last_id(stream): its last-generated-id; nil where there is no stream; an error table where the key holds another type.
local function last_id(stream)
  local info = redis.pcall('XINFO', 'STREAM', stream)
  if info.err then
    return not string.find(info.err, 'no such key') and info or nil
  end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end
-- numbers(id): the two numbers of an entry id.
local function numbers(id)
  local ms, seq = id:match('(%d+)-(%d+)')
  return tonumber(ms), tonumber(seq)
end
