-- Included by scripts that compare ids.
--
-- below(a, b): whether id a is less than id b.
local function below(a, b)
  local ms, seq = string.match(a, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(b, '^(%d+)-(%d+)$')
  ms, seq, other_ms, other_seq = tonumber(ms), tonumber(seq), tonumber(other_ms), tonumber(other_seq)
  return ms < other_ms or (ms == other_ms and seq < other_seq)
end
