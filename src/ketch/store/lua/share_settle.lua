-- Takes the acknowledgements of a member of a share group: all of them, or none.
--
-- KEYS    stream
-- ARGV    group, member
--         available   the consumer that holds what anybody may claim
--         lock        for how long a member may hold a delivery, ms
--         limit       how often a record is delivered at most
--         width       offsets of a millisecond
--         for each range: what ("gap", "done", "release", "undo"), the first and the last id, how many offsets lie in it
-- Returns how many deliveries were given up; or why it takes none: -1 where the member does not hold one of them, -3 where
--         another member does; -2 where the last of a range was not delivered yet, -5 where none of it was, -4 where nothing
--         is in flight besides
-- include share_common
-- include share_state
-- include share_order
local stream = KEYS[1]
local group, member, available, lock, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local width = tonumber(ARGV[6])
local state = state_of(stream, group)
if not state then return -4 end
-- What lies before `start` has been settled for all members.
local position = state['last-delivered-id']
local DIGITS = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}
local start, mine = nil, 0
if state.pending > 0 then
  local summary = redis.call('XPENDING', stream, group)
  start = summary[2]
  for _, each in ipairs(summary[4]) do mine = each[1] == member and tonumber(each[2]) or mine end
end
-- other(held, first, last): whether the stream has an entry in the range which is not held, and is no marker.
local function other(held, first, last)
  local from = first
  while true do
    local entries = redis.call('XRANGE', stream, from, last, 'COUNT', 100)
    for i = 1, #entries do
      local fields = entries[i][2]
      local marker = false
      for k = 1, #fields, 2 do marker = marker or fields[k] == 'control' end
      if not held[entries[i][1]] and not marker then return true end
    end
    if #entries < 100 then return false end
    from = '(' .. entries[100][1]
  end
end
-- owned(first, last, offsets): why the member does not hold the whole range.
local function owned(first, last, offsets)
  local rows = redis.call('XPENDING', stream, group, first, last, offsets)
  for i = 1, #rows do
    if rows[i][2] ~= member and rows[i][2] ~= available then return -3 end
  end
  return -1
end
-- run(first, count): so many consecutive ids. A number costs more to write than its digits to join.
local function run(first, count)
  local ids, ms, seq = {}, string.match(first, '^(%d+)-(%d+)$')
  ms, seq = tonumber(ms), tonumber(seq)
  while #ids < count do
    local tens = math.floor(seq / 10)
    local head, digit = string.format(tens > 0 and '%d-%d' or '%d-', ms, tens), seq - 10 * tens
    local some = math.min(10 - digit, width - seq, count - #ids)
    for n = digit + 1, digit + some do ids[#ids + 1] = head .. DIGITS[n] end
    seq = seq + some
    if seq == width then ms, seq = ms + 1, 0 end
  end
  return ids
end
-- all(first, last, offsets): whether a range is all that the member holds, and it holds the whole range. This asks for no rows
-- of XPENDING, which cost more than all else.
local function all(first, last, offsets)
  local function any(...) return #redis.call('XPENDING', stream, group, ...) > 0 end
  return mine == offsets and not any('-', '(' .. first, 1, member) and not any('(' .. last, '+', 1, member)
    and not any('IDLE', lock, first, last, 1, member)
end
local ranges = {}
for at = 7, #ARGV, 4 do
  local what, first, last, offsets = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local past = below(position, last) and -1 or ((not start or below(last, start)) and 1 or 0)
  if past < 0 then return not start and -4 or (below(position, first) and -5 or -2) end
  if offsets > @RANGE then return -1 end
  if past == 0 and (what == 'done' or what == 'gap') and all(first, last, offsets) then
    ranges[#ranges + 1] = {what, nil, first, last}
  elseif past == 0 then
    local rows, held = redis.call('XPENDING', stream, group, first, last, offsets, member), {}
    for i = 1, #rows do
      if rows[i][3] >= lock then return -1 end
      held[rows[i][1]] = true
    end
    if #rows < offsets and other(held, below(first, start) and start or first, last) then return owned(first, last, offsets) end
    ranges[#ranges + 1] = {what, rows}
  end
end
local freed = 0
for _, range in ipairs(ranges) do
  local what, rows = range[1], range[2]
  if what == 'release' then
    freed = freed + release(stream, group, available, rows, limit)
  elseif what == 'undo' then
    undo(stream, group, available, rows)
    freed = freed + #rows
  else
    if not rows then
      local left = mine - settle(stream, group, run(range[3], mine))  -- of ids beyond `width`, which a native client chose
      rows = left > 0 and redis.call('XPENDING', stream, group, range[3], range[4], left, member) or {}
    end
    local ids = {}
    for i = 1, #rows do ids[i] = rows[i][1] end
    settle(stream, group, ids)
  end
end
return freed
