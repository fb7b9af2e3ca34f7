-- Ends the script, with nothing done, if the absent key name must not be made:
-- its tenant has as many keys as it may have, or an overflow counter of the limit
-- lives. take.lua then decides the call. A name is that of the tenant, the limit,
-- and 16 bytes. The marker F beside the tenant says that it is full. The overflow
-- counter has 16 bytes that no other key of the limit has.
local base = string.sub(name, 1, -17)
if base ~= checked then
  checked = base
  local last = -1 -- where the number of the limit begins: its bytes but the last are above 127
  while string.byte(base, last - 1) > 127 do
    last = last - 1
  end
  local full = call('MGET', string.sub(base, 1, last - 1) .. 'F',
    base .. '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255')
  if full[1] or full[2] then
    return pack('<Bi8', 2, real)
  end
end
