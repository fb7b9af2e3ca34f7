-- Builds the new value of a cell from its numbers a, b and t. param is the position in
-- arg of the parameter of the charge. r is the revision of the numbers; nil means the
-- revision of the parameter. place is as in settle_fast.lua. The result is value, and life,
-- the time in milliseconds until the key expires, as text. Without life, the expiry
-- stays the same: a value of 28 bytes then replaces the old value, and a shorter one
-- overwrites the old value from byte 7 on. shared is set for an overflow counter. Doubles are exact enough for an expiry: the
-- error is a few microseconds, and two milliseconds are added.
if place == 1 then
  value = pack('<i7', a)
elseif place == 3 then
  value = pack('<i7i7i7', a, b, t)
else
  local kind, rev, x, y, z, _, _, window = read('<Bi8i8i8i8i8i8i8', arg, param)
  local bucket = kind == BUCKET or kind == LEAKY
  value = pack(PLAIN_FORM, 1, r or rev, a, b, t)
  if passed then
    life = '3600000'
  elseif bucket or not r or r <= rev or x < 0 then -- otherwise later numbers opened the window and set its expiry
    local till = t + window
    if kind == COUNTER then
      till = till + window
    elseif x < 0 and not shared then
      till = till + 12 * window -- so long can units be rolled over
    elseif bucket and y > 0 then
      till = t + ((kind == BUCKET and x or 0) - a) * z / y
      if b > 0 then
        local quarter = x * z / y / 4
        till = math.max(till, t - t % quarter + 5 * quarter)
      end
      if r and r > rev then
        till = math.max(till, now + window) + 3600000000 -- the later numbers may take longer to fill
      end
    end
    life = string.format('%d', math.min(math.max(till - now, 0) / 1000, 9007199254740) + 1002)
  end
end
