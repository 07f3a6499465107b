-- Entries of a range with the beginnings of their fields: what a person looks at, however large the values are.
--
-- KEYS    stream
-- ARGV    command        XRANGE or XREVRANGE
--         first, last    as that command takes them
--         most           entries
--         beginning      bytes of a field's name and value that are returned
--         whole          bytes up to which a batch is returned as a whole; of a larger one its header
--         fields         of an entry that are returned
--         how            '' for every entry; 'is' or 'has' for those whose key is, or contains, the next argument; an entry
--                        that holds a batch is never left out
--         key            what is looked for
-- Returns how many entries were looked at, the id of the last one of them, and per entry that is not left out: its id, how
--         many fields it has, and the name, size and beginning of each field
local stream = KEYS[1]
local command, first, last, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local beginning, whole, fields = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local how, wanted = ARGV[8], ARGV[9]
local header = 61
local function fits(words)
  for j = 1, #words, 2 do
    if words[j] == 'batch' then return true end
    if words[j] == 'key' then
      if how == 'is' then return words[j + 1] == wanted end
      return string.find(words[j + 1], wanted, 1, true) ~= nil
    end
  end
  return false
end
local found, looked, at = {}, 0, ''
for i, entry in ipairs(redis.call(command, stream, first, last, 'COUNT', most)) do
  local id, words = entry[1], entry[2]
  looked, at = i, id
  if how == '' or fits(words) then
    local row = {id, #words / 2}
    for j = 1, math.min(#words, 2 * fields), 2 do
      local name, value, most_of_it = words[j], words[j + 1], beginning
      if name == 'batch' then
        most_of_it = #value <= whole and #value or header
      end
      row[#row + 1] = string.sub(name, 1, beginning)
      row[#row + 1] = #value
      row[#row + 1] = string.sub(value, 1, most_of_it)
    end
    found[#found + 1] = row
  end
end
return {looked, at, found}
