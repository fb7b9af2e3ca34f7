-- Settling computes the state of a plain cell at the time now, in all cases. The Go
-- functions of Meter with the same names are the reference.
--
-- Redis creates all functions of a script again each time the script runs. To save
-- that, this text, with arith.lua before it, is the body of one function settling(now).
-- A script calls it only when it needs one of the functions. It uses no local variable
-- of the script, because each captured variable would cost time in every run.

local FIXED, COUNTER, BUCKET, CALENDAR, LEAKY, GRANT = 1, 3, 4, 5, 7, 8
local MAX_COUNT = 1000000000000000
local RESET, PROPORTIONAL, ADDITIVE = 1, 2, 3
local RESET_WITHIN = 1000000
local ROLLED, ROLLED_DAYS, ROLLED_IDLE, DAY, ROLLOVER_WINDOWS = 40000000000000, 400, 16, 86400000000, 12
local read, max, min = struct.unpack, math.max, math.min

-- parameter decodes the parameter at the position pos.
local function parameter(arg, pos)
  local p, x, y, z, formers, at = {}
  p.kind, p.as, x, y, z, p.rev, p.quota, p.window, formers, at = read('<Bi8i8i8i8i8i8i8BI4', arg, pos)
  p.at, p.x, p.y, p.z, p.room = pos, x, y, z, 0
  if p.kind == LEAKY then
    p.kind, p.x, p.room = BUCKET, 0, x
  end
  if formers > 0 then
    p.formers = {}
    for j = 1, formers do
      local f = {}
      f.rev, f.till, f.capacity, f.P, f.Q, f.carry, at = read('<i8i8i8i8i8B', arg, at)
      p.formers[j] = f
    end
  end
  return p
end

-- plain decodes a value. It returns the revision, or 0 if there is no valid value, then
-- a, b and t, and the state for the reply.
local function plain(v)
  if not v then
    return 0, 0, 0, 0, '\0'
  end
  if #v == 28 then
    local version, r, a, b, t = read('<Bi6i7i7i7', v)
    if version == 1 and r >= 1 and a >= -2000000000000 and a <= MAX_COUNT and b >= 0 and b <= MAX_COUNT
      and t >= -140737488355328 and t <= 8866461766385664 then
      return r, a, b, t, v
    end
  end
  return 0, 0, 0, 0, '\4'
end

-- proportional returns ceil(units * to / from), at most MAX_COUNT.
local function proportional(units, to, from)
  local share = mul_add_div(units, to, from - 1, from)
  return min(share or MAX_COUNT, MAX_COUNT)
end

-- carries calls change for each change since the revision r that does not keep the counts of
-- windows and logs. share returns the count after the change.
local function carries(p, r, change)
  local formers = p.formers
  for i = 1, #formers do
    local f, rev, quota = formers[i], p.as, p.quota
    if formers[i + 1] then
      rev, quota = formers[i + 1].rev, formers[i + 1].capacity
    end
    if rev > r and (f.carry == RESET or f.carry == PROPORTIONAL) then
      change(f, function(units)
        if f.carry == RESET then
          return 0
        elseif f.capacity == 0 or quota == 0 then
          return units
        end
        return proportional(units, quota, f.capacity)
      end)
    end
  end
end

-- carry_counts carries over the counts of a window, as Meter.carryCounts does.
local function carry_counts(p, r, a, b, t)
  carries(p, r, function(f, share)
    if t < f.till and f.carry == RESET then
      r = 0
    end
    if p.kind == COUNTER and t - f.P < f.till then
      b = share(b)
    end
    if t < f.till then
      a = share(a)
    end
  end)
  return r, a, b
end

-- carry_level carries over the level of a bucket that was last charged at the time at, as
-- Former.carryLevel does.
local function carry_level(f, capacity, a, b, at)
  local used = f.capacity - a
  if f.carry == RESET and at < f.till + RESET_WITHIN then
    return capacity, 0
  elseif f.capacity == 0 or capacity == 0 then
    return a, b
  elseif f.carry == PROPORTIONAL then
    return max(capacity - proportional(used, capacity, f.capacity), -1000000000000), 0
  elseif f.carry == ADDITIVE then
    return max(capacity - used, -1000000000000), b
  end
  return a, b
end

-- convert converts a bucket that was stored with other numbers to the numbers of p.
local function convert(p, r, a, b, t)
  local held, as, charged = r, p.as, t
  if r < as and as == p.rev and p.formers then
    local formers = p.formers
    for i = 1, #formers do
      local f = formers[i]
      local rev, capacity, Q = p.rev, p.x, p.z
      if formers[i + 1] then
        rev, capacity, Q = formers[i + 1].rev, formers[i + 1].capacity, formers[i + 1].Q
      end
      if rev > r then
        if held ~= f.rev then
          b = 0
        end
        if a >= f.capacity then
          a, b = f.capacity, 0
        end
        local till = min(f.till, now)
        if till > t then
          a, b = refill(a, b, till - t, f.P, f.Q, f.capacity)
          t = till
        end
        a, b = carry_level(f, capacity, a, b, charged)
        b = mul_add_div(b, Q, 0, f.Q) or 0
        held = rev
      end
    end
  end
  if held ~= as then
    b = 0
  end
  if a >= p.x and r <= as then
    a, b = p.x, 0
  end
  return a, b, t
end

-- calendar returns the start and the length of the calendar window that contains a time,
-- as Edges.window does.
local function calendar(p, at)
  local from, till = p.y, p.z
  if at >= till then
    from, till = till, p.rev
  end
  return at - (at - from) % (till - from), till - from
end

-- window_of returns what the value b of a calendar window says: the length, the units that were
-- rolled over into it, and the number of windows since that of the last charge, as State.window
-- does.
local function window_of(b)
  if b < ROLLED then
    return b, 0, 0
  end
  local idle = (b - ROLLED) % ROLLED_IDLE
  local packed = (b - ROLLED - idle) / ROLLED_IDLE
  local days = packed % ROLLED_DAYS
  return days * DAY, (packed - days) / ROLLED_DAYS, idle
end

-- packed returns the value b of a calendar window, as State.setWindow does.
local function packed(length, rolled, idle)
  if rolled == 0 and idle == 0 then
    return length
  end
  return ROLLED + (rolled * ROLLED_DAYS + max(floor((length + DAY / 2) / DAY), 1)) * ROLLED_IDLE + idle
end

-- left returns the units that can be charged, as Meter.Left does for a settled state.
local function left(p, a, b, t)
  if p.kind == BUCKET then
    return min(a, p.x) + p.room
  end
  if p.kind == COUNTER and b > 0 then
    return p.quota - a - fade(b, p.window - (max(now, t) - t), p.window)
  end
  if p.x < 0 then
    local _, rolled = window_of(b)
    return p.quota + min(rolled, -p.x) - a
  end
  return p.quota - a
end

-- charged returns the value b of a settled calendar window that is charged, as
-- Meter.chargeWindow does.
local function charged(p, b, t)
  if b < ROLLED then
    return b
  end
  local _, rolled, idle = window_of(b)
  if rolled > 0 then
    return b - idle
  end
  local _, length = calendar(p, t)
  return length
end

-- roll_over returns the state of the calendar window that begins at start after one that has
-- ended, whose middle is the time middle, as Meter.rollOver does.
local function roll_over(p, r, a, b, t, middle, start, length)
  local nominal = p.window - DAY
  local windows = floor((start - middle + nominal - 1) / nominal)
  local _, _, idle = window_of(b)
  idle = idle + windows
  if p.x == 0 or idle > ROLLOVER_WINDOWS then
    return 0, 0, 0, 0, false
  end
  local rolled = min(max(left(p, a, b, t), 0) + (windows - 1) * p.quota, -p.x)
  return max(r, p.as), 0, packed(length, rolled, idle), start, false
end

-- settle settles a state, as Meter.Settle does. The last result is true if the state
-- was in the future and was clamped to now. Then even a denial must store it.
local function settle(p, r, a, b, t)
  local kind, window = p.kind, p.window
  if kind == GRANT then
    if now >= p.z then
      return max(r, p.as), p.quota, p.z - p.y, p.y, false -- all units are charged
    elseif r == 0 or a < 0 then
      return 0, 0, 0, 0, false
    end
    return max(r, p.as), a, b, t, false
  end
  if r == 0 or a < 0 and kind ~= BUCKET then
    if kind == BUCKET then
      return p.as, p.x, 0, now, false
    end
    return 0, 0, 0, 0, false
  end
  if kind ~= BUCKET and r < p.as and p.formers then
    r, a, b = carry_counts(p, r, a, b, t)
    if r == 0 then
      return 0, 0, 0, 0, false
    end
  end
  local clamped = false
  if t > now and kind ~= CALENDAR then
    local horizon = window
    if kind == BUCKET and p.y > 0 then
      horizon = flow(p.x + p.room, 0, p.y, p.z)
    end
    if t > now + horizon then
      t, clamped = now, true
    end
  end
  if kind == BUCKET then
    if r ~= p.as or a >= p.x then
      a, b, t = convert(p, r, a, b, t)
    end
    if b >= p.z then
      b = 0
    end
    if now > t then
      a, b = refill(a, b, now - t, p.y, p.z, p.x)
      t = now
    end
    if r > p.as then
      b = 0 -- the stored revision has another denominator for fractions
    end
  elseif kind == CALENDAR then
    local length, rolled, idle = window_of(b)
    if length <= 0 then
      return 0, 0, 0, 0, false
    end
    local middle = t + floor(min(length, window) / 2)
    local start
    start, length = calendar(p, max(now, middle))
    if start > middle then
      return roll_over(p, r, a, b, t, middle, start, length)
    end
    if start > now + window then
      start, length = calendar(p, now)
      clamped, idle = true, 0
    end
    t, b = start, packed(length, rolled, idle)
  elseif kind == FIXED then
    if now >= t + window then
      return 0, 0, 0, 0, false
    end
  elseif now >= t + window then
    if a == 0 or now >= t + 2 * window then
      return 0, 0, 0, 0, false
    end
    t, a, b = t + window, 0, a
  end
  return max(r, p.as), a, b, t, clamped
end

-- opened settles a value v with the numbers of p. It returns: the units that can be
-- charged, or -1 if the quota is 0; a, b and t of an open window or a bucket, to which
-- a charge is added; 0 for a window or 2 for a bucket; the state for the reply; the
-- revision of the numbers; and whether the state was clamped to now.
local function opened(p, v)
  local r, a, b, t, state = plain(v)
  local cut
  r, a, b, t, cut = settle(p, r, a, b, t)
  local units, place = -1, 0
  if p.quota > 0 then
    units = left(p, a, b, t)
  end
  if p.kind == BUCKET then
    place = 2
  elseif r ~= 0 then
    if p.kind == CALENDAR then
      b = charged(p, b, t)
    end
  else
    r, t = p.as, now
    if p.kind == CALENDAR then
      t, b = calendar(p, now)
    elseif p.z == 1 then
      t = now - now % p.y
    end
  end
  return units, a, b, t, place, state, r, cut
end

return parameter, opened, plain, settle, left, calendar, mul_add_div, carries, window_of, charged
