-- may(...): whether the user may run this command with these keys; true where Redis cannot say it (before 7.0). To be
-- asked before anything is written, for what a script has written stays where a later command of it is refused.
local may = redis.acl_check_cmd or function() return true end
-- lacks(command): the error, as Redis has it.
local function lacks(command)
  return redis.error_reply("NOPERM this user has no permissions to run the '" .. command .. "' command")
end
