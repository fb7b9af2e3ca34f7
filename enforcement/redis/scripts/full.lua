-- Ends the script without any effect if the absent key name must not be created. That
-- is so if its limit or its tenant may have no more keys, or if the limit has an overflow
-- counter. take.lua then decides the call. The name consists of the tenant, the limit, and a
-- partition of 16 bytes. The key of the limit with F at the end exists while the limit may
-- have no more keys, and the key of the tenant with F while none of its limits may. The
-- overflow counter has a partition of 16 bytes 255, which no other key of the limit has.
local base = string.sub(name, 1, -17)
if base ~= checked then
  checked = base
  local last = -1 -- position of the limit's number: all its bytes but the last one are above 127
  while string.byte(base, last - 1) > 127 do
    last = last - 1
  end
  local full = call('MGET', string.sub(base, 1, last - 1) .. 'F', base .. 'F',
    base .. '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255')
  if full[1] or full[2] or full[3] then
    return pack('<Bi8', 2, real)
  end
end
