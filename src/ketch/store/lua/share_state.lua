-- Included by scripts that look at a native group.
--
-- state_of(stream, group): the row of XINFO GROUPS as a table; nil where there is none.
local function state_of(stream, group)
  local rows = redis.pcall('XINFO', 'GROUPS', stream)
  for i = 1, #rows do
    local fields = {}
    for k = 1, #rows[i], 2 do fields[rows[i][k]] = rows[i][k + 1] end
    if fields.name == group then return fields end
  end
end
