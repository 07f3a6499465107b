-- What readers must know of a partition's transactions, in one step.
--
-- KEYS    transactions, aborted
-- ARGV    most          entries of `aborted`
-- Returns the open transactions as HGETALL has them, and the newest entries of `aborted`, the newest first
return {redis.call('HGETALL', KEYS[1]), redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', ARGV[1])}
