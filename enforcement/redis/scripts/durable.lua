-- Ends the script without any effect if the key marker does not exist. marker is the name of
-- the marker of the durable counters, or nil if no request of the call is durable. The
-- marker is absent if the server lost data and the durable counters are not restored yet;
-- see confirm.lua.
if marker and not call('GET', marker) then
  return pack('<Bi8', 3, real)
end
