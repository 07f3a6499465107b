-- The last command of an append with ids chosen by the caller, see guard.lua. Where GUARD has just refused the batch, it
-- puts the stream's last-generated-id back, or removes the string that stood for a missing stream; the fence stays.
-- Else it reads the stream, for a write ends the tracking of its key (CLIENT TRACKING), and a read begins it again.
--
-- KEYS    stream, fence
-- Returns 1 after a refused batch, else the stream's length
local stream, fence = KEYS[1], KEYS[2]
local last = redis.call('GET', fence)
if not last then return redis.call('XLEN', stream) end
if last ~= 'up' then
  if redis.call('TYPE', stream).ok == 'string' then
    redis.call('DEL', stream)
  else
    redis.call('XSETID', stream, last)
  end
  redis.call('SET', fence, 'up', 'PX', 60000)
end
return 1
