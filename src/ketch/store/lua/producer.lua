-- Included by scripts that move an idempotent producer's state (KIP-98) along with its batch.
-- The state is a field of a hash: `epoch last_sequence updated_ms` and up to five batches `first:last:entry_id`, by which
-- a retry is recognised. See store/append/producers.py, which reads and writes the same text.
-- include may
local state
-- producer_is(hash, id, expected): whether the state begins with `expected`, "epoch last_sequence"; "" where there is none.
local function producer_is(hash, id, expected)
  state = redis.call('HGET', hash, id) or ''
  return (state:match('^%S+ %S+') or '') == expected
end
-- may_move(hash, id): whether the user may; to be asked by who moves it after the batch.
local function may_move(hash, id) return may('HSET', hash, id, '') end
-- move_producer(hash, id, head, now, batch, entry): the state after a batch; to be called after producer_is. The batches
-- before are kept while the epoch is the same.
local function move_producer(hash, id, head, now, batch, entry)
  local text, batches = head .. ' ' .. now, {}
  if state:match('^%S+') == head:match('^%S+') then
    for kept in state:gmatch('%S+:%S+:%S+') do batches[#batches + 1] = kept end
  end
  for i = math.max(1, #batches - 3), #batches do text = text .. ' ' .. batches[i] end
  redis.call('HSET', hash, id, text .. ' ' .. batch .. entry)
end
