-- Makes what is to be stored of a cell: of its numbers a, b and t, charged by the
-- parameter at the place param of arg. r is their revision, nil when it is the
-- parameter's; place is as swift.lua sets it. Sets value, and life, the
-- milliseconds until the key expires, as text. Without life the expiry stays: a
-- value of 28 bytes replaces the old one, and a shorter one is written over the
-- old one from byte 7 on. Doubles are exact enough for an expiry: they are off by
-- a few microseconds, and two milliseconds are added.
if place == 1 then
  value = pack('<i7', a)
elseif place == 3 then
  value = pack('<i7i7i7', a, b, t)
else
  local kind, rev, x, y, z, _, _, window = read('<Bi8i8i8i8i8i8i8', arg, param)
  value = pack(PLAIN_FORM, 1, r or rev, a, b, t)
  if passed then
    life = '3600000'
  elseif kind == BUCKET or not r or r <= rev then -- else later numbers made the window and its expiry
    local till = t + window
    if kind == COUNTER then
      till = till + window
    elseif kind == BUCKET and y > 0 then
      till = t + (x - a) * z / y
      if b > 0 then
        local quarter = x * z / y / 4
        till = math.max(till, t - t % quarter + 5 * quarter)
      end
    end
    life = string.format('%d', math.min(math.max(till - now, 0) / 1000, 9007199254740) + 1002)
  end
end
