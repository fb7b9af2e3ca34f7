-- confirm: deletes the marker of the durable counters if it is from another server, or from
-- an older copy of the data. A node runs it before it uses a connection. Then no durable
-- decision uses an older copy. Without the marker, no script decides a durable request.
--
--   KEYS     the marker of durable.lua, and the marker of all nodes of pulse.lua.
--
--   reply    1 if the marker exists, otherwise 0.

-- include: identity.lua
local marker = get(KEYS[1])
if marker == '' then
  return 0
end
if marker == identity(KEYS[2]) then
  return 1
end
redis.call('DEL', KEYS[1])
return 0
