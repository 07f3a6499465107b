-- Records below an offset were deleted: the archive does not answer for them any more.
--
-- KEYS    archive
-- ARGV    field, offset
-- Returns 1; 0 where there is no archive. The field is only ever raised.
local archive = KEYS[1]
local field, offset = ARGV[1], ARGV[2]
if redis.call('EXISTS', archive) == 0 then return 0 end
local known = redis.call('HGET', archive, field)
if not known or tonumber(known) < tonumber(offset) then redis.call('HSET', archive, field, offset) end
return 1
