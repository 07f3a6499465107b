-- Included by scripts that write one commit; store/coordination/terms.py has the cases.
-- later(key, term): the term kept under `key` where it is higher than `term`, else false; and whether it is `term`.
local function later(key, term)
  local stored = redis.call('GET', key)
  return (tonumber(stored or '') or 0) > tonumber(term) and stored, stored == term
end
