-- A native group's position.
--
-- KEYS    stream
-- ARGV    group
-- Returns its last-delivered-id; nil where there is no such group
local stream = KEYS[1]
local group = ARGV[1]
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local fields = {}
  for k = 1, #row, 2 do fields[row[k]] = row[k + 1] end
  if fields.name == group then return fields['last-delivered-id'] end
end
