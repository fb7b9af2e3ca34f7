-- mark: sets the marker of the durable counters, after they have been restored. It does
-- nothing if the caller no longer has the lock, for example because the server lost
-- data again.
--
--   KEYS     the lock of the restoration, the marker of durable.lua, and the marker of all
--            nodes of pulse.lua.
--
--   ARGV     the token of the lock.
--
--   reply    1 if the marker was set, otherwise 0.

-- include: identity.lua
if get(KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], identity(KEYS[3]))
redis.call('DEL', KEYS[1])
return 1
