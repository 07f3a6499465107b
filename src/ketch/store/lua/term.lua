-- Included by scripts that write a coordinator's state, a hash, in a term; store/coordination/terms.py has the cases.
-- hold(state, loaded, session, node, may_take, above): whether the state may be written, and the term to do it in; else
-- false and the session of the holder. Sets `term`, `session` and `broker` (the node id) where the term changes.
local function hold(state, loaded, session, node, may_take, above)
  local had = redis.call('HMGET', state, 'term', 'session')
  local term, mine = had[1] or '0', had[2] == session
  if term ~= loaded or (had[2] and not mine and may_take == '0') then return false, had[2] or '' end
  local number = tonumber(term) or 0
  if not mine or number <= tonumber(above) then
    -- Microseconds of Redis's clock: higher than any term of a state of this name that was deleted.
    local time = redis.call('TIME')
    term = string.format('%.0f', math.max(time[1] * 1000000 + time[2], number + 1, above + 1))
    redis.call('HSET', state, 'term', term, 'session', session, 'broker', node)
  end
  return true, term
end
