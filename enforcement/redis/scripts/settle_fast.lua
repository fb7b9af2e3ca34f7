-- Settles the value v quickly, except in rare cases. kind, rev, x, y and z are the
-- first numbers of the parameter. The results are l, the number of units that can be
-- charged; a, b and t of an open window or a bucket, to which a charge is added; and
-- place. place is 0 for a window and 2 for a bucket, plus 1 if a charge can be stored
-- in place. In the rare cases l stays nil, and settle.lua must settle the value: other
-- numbers stored it, it is invalid, it is in the future, a product exceeds 2^53, or the
-- quota is 0.
if not v then
  if x > 0 and y > 0 then
    l, a, b, t, place = x, 0, 0, now, 0
    if kind == BUCKET then
      a, place = x, 2
    elseif kind == LEAKY then
      place = 2
    elseif z == 1 then
      t = now - now % y
    end
  end
elseif #v == 28 then
  local version, r
  version, r, a, b, t = read(PLAIN_FORM, v)
  if r == rev and version == 1 and x > 0 and b >= 0 and t <= now and t >= -140737488355328 then
    local elapsed = now - t
    if kind == BUCKET or kind == LEAKY then
      local flown, full = elapsed * y + b, kind == BUCKET and x or 0
      if flown < 9007199254740992 and y > 0 and b < z and a < full and a >= -2000000000000 then
        local fraction = flown % z
        l, place = a + (flown - fraction) / z, 2
        if l >= full then
          l, a, b = full, full, 0
        else
          if b > 0 and fraction > 0 and elapsed <= now % (x * z / y / 4) then
            place = 3
          end
          a, b = l, fraction
        end
        l, t = l + x - full, now
      end
    elseif a >= 0 and a <= MAX_COUNT and b <= MAX_COUNT then
      place = 0
      if elapsed < y then
        place = 1
      elseif kind == FIXED or a == 0 or elapsed >= 2 * y then
        a, b, t = 0, 0, now
        if z == 1 then
          t = now - now % y
        end
      else
        a, b, t = 0, a, t + y
      end
      if kind == FIXED or b == 0 then
        l = x - a
      else
        local weight = b * (t + y - now)
        if weight < 9007199254740992 then
          l = x - a - (weight - weight % y) / y
        end
      end
    end
  end
end
