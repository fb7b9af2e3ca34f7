-- lease: draws quota for leases, and settles earlier draws. limitertest.Store does the
-- same in Go and explains why. All numbers are little-endian i8 unless marked.
--
--   KEYS     for each draw the cell, and the key of the cell's outstanding units.
--
--   ARGV[1]  head    passed u1 (1: the next field replaces the clock), clock, number of
--                    draws u2
--            draws   algorithm u1 (as in cell.lua), rev, quota, window, capacity, P,
--                    Q, epoch, start, want, least, part; for each of two lots until,
--                    spent, back
--
--   reply    the clock of Redis; for each draw: units, until, rev, a, b, t. A rev of 0
--            means that the cell is absent, or that it is a bucket of another revision.
--
-- The outstanding units of a bucket are stored as u1 3, rev i6, level i7, part i7, at
-- i7, shown i7, and for each of two lots until i7, units i7.

local read, pack, byte, call = struct.unpack, struct.pack, string.byte, redis.call
local max, min = math.max, math.min
local FIXED, COUNTER, BUCKET = 1, 3, 4
local PLAIN_FORM, OUTSTANDING_FORM = '<Bi6i7i7i7', '<Bi6i7i7i7i7i7i7i7i7'

local arg = ARGV[1]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local passed, clock, count, pos = read('<Bi8I2', arg)
if passed == 1 then
  now = clock
end

-- plain returns the revision and the numbers of a plain cell. The revision is 0 if the
-- cell does not exist.
local function plain(key)
  local v = call('GET', key)
  if not v or #v ~= 28 or byte(v) ~= 1 then
    return 0, 0, 0, 0
  end
  local _, r, a, b, t = read(PLAIN_FORM, v)
  return r, a, b, t
end

local function window(d, key)
  local r, a, b, t = plain(key)
  if r == 0 then
    return 0, 0, 0, 0, 0, 0
  end
  local back, units, till, dirty = d.back1 + d.back2, 0, 0, false
  if r > d.rev then
    back = 0 -- the counter was carried over since the draw
  end
  if t == d.start then
    a, dirty = max(a - back, 0), back > 0
  elseif d.kind == COUNTER and t == d.start + d.window then
    b, dirty = max(b - back, 0), back > 0
  end
  if d.want > 0 and r == d.rev and t == d.start and now < t + d.window then
    local left = d.quota - a
    if d.kind == COUNTER and b > 0 then
      left = left - fade(b, d.window - (max(now, t) - t), d.window)
    end
    local some = min(d.want, floor(max(left, 0) / d.part))
    if some >= d.least then
      a, units, till, dirty = a + some, some, d.start + d.window, true
    end
  end
  if dirty then
    call('SET', key, pack(PLAIN_FORM, 1, r, a, b, t), 'KEEPTTL')
  end
  return units, till, r, a, b, t
end

-- flows returns the level of a bucket at the time to, from its level at the time from.
local function flows(d, a, b, from, to)
  if to <= from then
    return a, b
  end
  return refill(a, b, to - from, d.P, d.Q, d.capacity)
end

-- outstanding reads the stored record of the outstanding units of a bucket.
local function outstanding(key)
  local v = call('GET', key)
  local o = { rev = 0, level = 0, part = 0, at = 0, shown = 0, till1 = 0, units1 = 0, till2 = 0, units2 = 0 }
  if v and #v == 63 and byte(v) == 3 then
    local _
    _, o.rev, o.level, o.part, o.at, o.shown, o.till1, o.units1, o.till2, o.units2 = read(OUTSTANDING_FORM, v)
  end
  return o
end

-- held returns the level of the bucket now, without the outstanding units. That is the
-- level in its value, or a higher one if the record allows to compute what was charged
-- since the last draw.
local function held(d, o, a, b, t)
  local units, part = flows(d, a, b, t, now)
  if o.rev ~= d.rev then
    return units, part
  end
  local shown, shown_part = flows(d, o.level - o.units1 - o.units2, o.part, o.shown, t)
  local charged = shown - a
  if t < o.shown or shown_part ~= b or charged < 0 then
    return units, part
  end
  local level, level_part, at = o.level, o.part, o.at
  if o.units1 > 0 and o.till1 <= now then
    level, level_part = flows(d, level, level_part, at, o.till1)
    level, at, o.units1 = level - o.units1, max(at, o.till1), 0
  end
  if o.units2 > 0 and o.till2 <= now then
    level, level_part = flows(d, level, level_part, at, o.till2)
    level, at, o.units2 = level - o.units2, max(at, o.till2), 0
  end
  level, level_part = flows(d, level, level_part, at, now)
  level = level - charged - o.units1 - o.units2
  if level > units then
    return level, level_part
  end
  return units, part
end

local function bucket(d, key, beside)
  local r, a, b, t = plain(key)
  if r == 0 or r ~= d.rev then
    return 0, 0, 0, 0, 0, 0
  end
  local o = outstanding(beside)
  local level, part = held(d, o, a, b, t)
  if o.till1 <= now then
    o.units1 = 0 -- after a lot lapses, its units no longer reduce the room for refills; tokens are not returned
  end
  if o.till2 <= now then
    o.units2 = 0
  end
  o.till1, o.till2 = min(o.till1, now + 2 * d.epoch), min(o.till2, now + 2 * d.epoch)
  level = level + o.units1 + o.units2
  if level >= d.capacity then
    level, part = d.capacity, 0
  end
  local function settle(till, spent, back)
    if o.till1 == till then
      local done = min(spent + back, o.units1)
      o.units1, level = o.units1 - done, level - min(spent, done)
    end
    if o.till2 == till then
      local done = min(spent + back, o.units2)
      o.units2, level = o.units2 - done, level - min(spent, done)
    end
  end
  settle(d.till1, d.spent1, d.back1)
  settle(d.till2, d.spent2, d.back2)

  local units, till = 0, 0
  local epoch_end = (floor(now / d.epoch) + 2) * d.epoch
  local open = true
  if o.units2 > 0 and o.till2 == epoch_end then
    open = true
  elseif o.units2 > 0 and o.till2 < epoch_end and o.units1 == 0 then
    o.till1, o.units1, o.till2, o.units2 = o.till2, o.units2, epoch_end, 0
  elseif o.units2 == 0 and (o.units1 == 0 or o.till1 < epoch_end) then
    o.till2 = epoch_end
  else
    open = false
  end
  if open and d.want > 0 then
    local some = min(d.want, floor(max(level - o.units1 - o.units2, 0) / d.part))
    if some >= d.least then
      o.units2, units, till = o.units2 + some, some, o.till2
    end
  end

  local tokens, last = level - o.units1 - o.units2, 0
  if o.units1 > 0 then
    last = o.till1
  end
  if o.units2 > 0 then
    last = max(last, o.till2)
  end
  local shown = now
  if last > now then
    local room, wait = d.capacity - o.units1 - o.units2 - tokens, 0
    if room > 0 then
      wait = flow(room, part, d.P, d.Q)
    end
    shown = max(now, last - max(wait - 1, 0))
  end
  local life, beside_life = 3600000, 3600000
  if passed == 0 then
    local full = shown
    if tokens < d.capacity then
      full = shown + flow(d.capacity - tokens, part, d.P, d.Q)
    end
    if part > 0 and d.P > 0 then -- the value can be changed in place: see cell.lua
      local quarter = d.capacity * d.Q / d.P / 4
      full = max(full, shown - shown % quarter + 5 * quarter)
    end
    life = min(max(floor((full - now) / 1000), 0), 9007199254740) + 1002
    beside_life = max(floor((last - now) / 1000), 0) + 1001
  end
  call('SET', key, pack(PLAIN_FORM, 1, r, tokens, part, shown), 'PX', string.format('%d', life))
  call('SET', beside, pack(OUTSTANDING_FORM, 3, r, level, part, now, shown, o.till1, o.units1, o.till2, o.units2),
    'PX', string.format('%d', beside_life))
  return units, till, r, tokens, part, now
end

local reply = { pack('<i8', now) }
for i = 1, count do
  local d = {}
  d.kind, d.rev, d.quota, d.window, d.capacity, d.P, d.Q, d.epoch, d.start, d.want, d.least, d.part,
    d.till1, d.spent1, d.back1, d.till2, d.spent2, d.back2, pos = read('<Bi8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8', arg, pos)
  if d.kind == BUCKET then
    reply[i + 1] = pack('<i8i8i8i8i8i8', bucket(d, KEYS[2 * i - 1], KEYS[2 * i]))
  else
    reply[i + 1] = pack('<i8i8i8i8i8i8', window(d, KEYS[2 * i - 1]))
  end
end
return table.concat(reply)
