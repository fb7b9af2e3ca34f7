-- take: decides requests of any form in one call. All numbers are little-endian; u1,
-- u2, u4, i6, i7 and i8 are unsigned and signed integers of so many bytes. A cell is
-- one counter.
--
--   KEYS     the distinct cells: first the plain ones, then the logs, then those of
--            concurrency limits; then the records of idempotent requests and reservations;
--            then the lists of reservation.lua; then, if a request is durable, the marker of
--            durable.lua.
--
--   ARGV[1]  head       deadline i8 (by the clock of Redis; 0: none), passed u1 (1: the
--                       next field replaces the clock), clock i8, number of plain cells
--                       u2, of parameters u2, of decisions u2, of records u2, of
--                       reservations u2, of cells of concurrency limits u2, of markers u1,
--                       position of the logs u4, from 1
--            parameters in the form of cell.lua, followed by their former numbers
--            logs       for each log cell: index of the parameter u2, whole u1 (1: the
--                       reply must have all its entries); then for each cell of a
--                       concurrency limit: index of the parameter u2
--            decisions  mode u1, plus 128 if it has a record, plus 64 if that is of a
--                       reservation, plus 32 if it has a lease, number of charges u2; if it
--                       has a lease: its ID, 16 bytes, and its time to live i8 (0: the
--                       window); if it
--                       has a record: its number u2, and three fields of 16 bytes: the
--                       hash of the request, the hash of the charges, and the ID of the
--                       request; if it has a reservation: tenant u4, version u4, flags u1
--                       (1 ends, 2 due), life i8, kept i8, most i8, the number of the record of the
--                       idempotent request u2 (from 1; 0: that of the reservation), size of
--                       the data u4, the data;
--                       for each charge, in ascending order of group: cell
--                       u2, parameter u2, group u2, cost i8, and for ADJUST the receipt: cost
--                       i8, rev i8, a i8, b i8, t i8, capacity i8, index u4. A group
--                       lists a cell once, except those of grants, which follow the charge
--                       of their window with the cost 0.
--
--   reply    done u1 (0: the deadline has passed, the script did nothing; 3: the marker is
--            absent, the script did nothing), clock of Redis i8; if done: one byte for each
--            decision (1 granted, 2 refused, 3 repeated, 4 the record is of another request, 5
--            no such reservation to read or change, 6 too many reservations);
--            then each cell as it was before the call: u1 0 absent, 4 invalid
--            (counts as absent), 1 and the rest of the value as below, or, for a
--            log, 2 and its state settled at this time: rev i8, units i8,
--            entries i8, newest i8, units before the first entry i8, number of
--            entries that follow u2, and these entries; or, for a concurrency limit, 6
--            and the number of leases u2 and the rest of the value as below. If a cell is
--            absent and its limit may have no more keys (full.lua), the overflow counter of the limit replaces
--            it: u1 5, then the overflow counter as above. At the end is, for each
--            decision that was repeated, its record, from the hash of the charges on; for a
--            reservation that was repeated or read, the size of the record u4 and the
--            whole record, which can be that of its idempotent request.
--
-- The value of a log is u1 2, rev i6, units i7, entries u2, newest i7, sum i7, dead u4,
-- and the entries, oldest first: t i7, sum i7. The sum of an entry includes all units
-- up to this entry, so that a bisection finds the entries that have left the window.
-- dead is the number of bytes of entries that have left.
--
-- The value of a concurrency limit is u1 6, rev i6, places held i7, end of the last lease
-- i7, newest grant i7, and the leases, in the order in which they end: end i7, places u4,
-- ID of 16 bytes.
--
-- A record is u1 3, the three fields of the decision, its time i8, the units of group 0 of a
-- TAKE_UP_TO i8, the number of charges u2, and for each charge: u1 1 if it fit, and the
-- settled state of the cell after the decision: rev i6, a i7, b i7, t i7, without the
-- entries of a log. It has effect for 10 minutes.
--
-- The script decides all requests before it writes. If Redis cannot write, it fails the
-- first write, so that a call is applied completely or not at all.

local sub, byte, floor = string.sub, string.byte, math.floor
local max, min = math.max, math.min

local PEEK, FORCE, REFUND, RESET, TAKE_UP_TO, ADJUST, RELEASE = 1, 2, 3, 4, 5, 6, 7
local MAX_LOG = 10000
local SMALL_LOG = 64      -- a log with at most this number of entries is written again as a whole
local HEADER, ENTRY = 34, 14
local LOG_FORM, ENTRY_FORM = '<Bi6i7I2i7i7I4', '<i7i7'

local arg = ARGV[1]
local time = call('TIME')
local real = time[1] * 1000000 + time[2]
local deadline, passed, now, plain, param_count, decision_count, record_count, reservations, held_count, markers, pos, parameters =
  read('<i8Bi8I2I2I2I2I2I2BI4', arg)
if deadline ~= 0 and real > deadline then
  return pack('<Bi8', 0, real)
end
passed = passed == 1
if not passed then
  now = real
end
local marker = markers == 1 and KEYS[#KEYS]
-- include: durable.lua

local parameter, _, plain_value, settle, left_of, calendar, mul_add_div, carries, window_of, charged = settling(now)

local cells, params = {}, {}
for i = 1, param_count do
  params[i] = parameter(arg, parameters + 62 * (i - 1))
end

-- Plain cells: r, a, b and t are the stored numbers, updated by this call. sr, sa, sb
-- and st are the same numbers, settled with the parameter p.

local logs -- log_functions, once made
local held -- lease_functions, once made

-- left settles a cell and returns the number of units that can be charged. id is the ID
-- of the lease of a concurrency limit.
local function left(c, p, id)
  if c.log then
    return p.quota - c.a
  end
  if c.leases then
    return held.left(c, p, id)
  end
  if c.p ~= p then
    c.p = p
    c.sr, c.sa, c.sb, c.st, c.clamped = settle(p, c.r, c.a, c.b, c.t)
    if c.shared and p.x < 0 and c.sa == 0 then -- nothing rolls over to an overflow counter
      c.sr, c.sa, c.sb, c.st, c.clamped = 0, 0, 0, 0, false
    end
  end
  return left_of(p, c.sa, c.sb, c.st)
end

-- keep marks a cell to be stored with its settled numbers. by is the parameter that
-- determines the expiry.
local function keep(c, p)
  if not c.log and not c.leases then
    c.r, c.a, c.b, c.t = c.sr, c.sa, c.sb, c.st
  end
  c.dirty = true
  if not c.by or p.as >= c.r then
    c.by = p
  end
end

-- look is left for a decision that may write. If the state was in the future and was
-- clamped to now, it is stored even if the request is denied.
local function look(c, p, id)
  local l = left(c, p, id)
  if c.clamped then
    c.clamped = false
    keep(c, p)
  end
  return l
end

-- overflow returns the overflow counter that replaces an absent cell, or nil if the
-- cell may be created. All absent cells of a limit share one table, which the function
-- open creates. If the limit may have keys again, a cell may be created if the overflow
-- counter of its limit is unused again. For a plain cell, own checks that later.
local overflows = {}
local GRANTS = '\253\255\255\255\015' -- the number of the cells of grants in a key
local function overflow(key, open)
  local base = sub(key, 1, -17)
  if sub(base, -5) == GRANTS then
    return nil -- the number of grants has its own bound
  end
  local c = overflows[base]
  if c == nil then
    local name = base .. '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255'
    local last = -1
    while byte(base, last - 1) > 127 do
      last = last - 1
    end
    local found = call('MGET', sub(base, 1, last - 1) .. 'F', base .. 'F', name)
    local full = found[1] or found[2]
    c = false
    if full or found[3] then
      c = open(name, found[3])
      c.key, c.shared, c.full = name, true, full
      if (c.log or c.leases) and c.r == 0 and not c.full then
        c = false
      end
    end
    overflows[base] = c
  end
  return c or nil
end

-- own returns the cell i. If the cell uses an overflow counter that is unused again,
-- own returns a new cell instead.
local function own(i, p)
  local c = cells[i]
  if c.shared and not c.full and not c.log and not c.leases then
    left(c, p)
    if c.sr == 0 or p.kind == BUCKET and c.sa >= p.x then
      c = { r = 0, a = 0, b = 0, t = 0, state = '\0' }
      cells[i] = c
    end
  end
  return c
end

local function charge(c, p, cost, id, ttl)
  if cost == 0 then
    return
  end
  if c.log then
    return logs.charge(c, p, cost)
  end
  if c.leases then
    return held.charge(c, p, cost, id, ttl)
  end
  left(c, p)
  if p.kind == CALENDAR then
    c.sb = charged(p, c.sb, c.st)
  end
  if c.sr == 0 then
    c.sr, c.sa, c.sb, c.st = p.as, 0, 0, now
    if p.kind == CALENDAR then
      c.st, c.sb = calendar(p, now)
    elseif p.kind == GRANT then
      c.st, c.sb = p.y, p.z - p.y
    elseif p.kind ~= BUCKET and p.z == 1 then
      c.st = now - now % p.window
    end
  end
  if p.kind == BUCKET then
    c.sa = min(c.sa, max(c.sa - cost, -p.room - max(p.x + p.room, 1)))
  else
    c.sa = min(c.sa + cost, MAX_COUNT)
  end
  keep(c, p)
end

-- forget resets a cell to an unused one.
local function forget(c)
  c.r, c.a, c.b, c.t, c.p, c.by = 0, 0, 0, 0, nil, nil
  if c.log then
    c.sum, c.body, c.appended, c.merged = 0, '', false, false
  end
  if c.leases then
    c.body = ''
  end
end

-- lease_functions creates the functions for concurrency limits, as log_functions does for
-- logs. c.body has the leases. The Go functions of concurrency.go are the reference.
local function lease_functions()
  local HEADER, ENTRY, MOST, MOST_COST = 28, 27, 1000, 2147483647
  local ENTRY_FORM = '<i7I4'

  -- find returns the position of a lease in c.body and its places, or nil and 0.
  local function find(c, id)
    local at = string.find(c.body, id, 1, true)
    while at and at % ENTRY ~= 12 do
      at = string.find(c.body, id, at + 1, true)
    end
    if not at then
      return nil, 0
    end
    local _, units = read(ENTRY_FORM, c.body, at - 11)
    return at - 11, units
  end

  local function left_leases(c, p, id)
    local l = p.quota - c.a
    local _, own = find(c, id)
    if own > 0 then
      return own + max(l, 0)
    end
    return l
  end

  -- cut removes the lease at a position.
  local function cut(c, at, units)
    c.body = sub(c.body, 1, at - 1) .. sub(c.body, at + ENTRY)
    c.a = c.a - units
    if #c.body == 0 then
      c.r, c.a, c.b, c.t = 0, 0, 0, 0
    else
      c.b = read('<i7', c.body, #c.body - ENTRY + 1)
    end
  end

  local function charge_leases(c, p, cost, id, ttl)
    local at, own = find(c, id)
    if #c.body - (at and ENTRY or 0) >= MOST * ENTRY then
      return keep(c, p)
    end
    local r, t = c.r, c.t
    if r == 0 then
      r, t = p.as, now
    end
    if at then
      cut(c, at, own)
    end
    c.r, c.t = r, max(t, now)
    local till = c.t + (ttl > 0 and ttl or p.window)
    cost = min(cost, MOST_COST)
    at = #c.body
    while at > 0 and read('<i7', c.body, at - ENTRY + 1) > till do
      at = at - ENTRY
    end
    c.body = sub(c.body, 1, at) .. pack(ENTRY_FORM, till, cost) .. id .. sub(c.body, at + 1)
    c.a = c.a + cost
    c.b = read('<i7', c.body, #c.body - ENTRY + 1)
    keep(c, p)
  end

  -- release returns up to cost places of a lease, or all without cost. It returns the
  -- number of places that the lease held.
  local function release(c, p, id, cost)
    local at, own = find(c, id)
    if not at then
      return 0
    end
    if not cost or cost >= own then
      cut(c, at, own)
    else
      local till = read('<i7', c.body, at)
      c.body = sub(c.body, 1, at - 1) .. pack(ENTRY_FORM, till, own - cost) .. sub(c.body, at + 11)
      c.a = c.a - cost
    end
    keep(c, p)
    return own
  end

  -- adjust changes the places of a lease to cost and renews it. It returns the change.
  local function adjust_leases(c, p, cost, was, id, ttl)
    local at, own = find(c, id)
    if cost == 0 then
      if at then
        cut(c, at, own)
      end
      keep(c, p)
      return -own
    end
    if at or was == 0 then
      charge_leases(c, p, cost, id, ttl)
      local _, after = find(c, id)
      return after - own
    end
    keep(c, p)
    return 0
  end

  -- settle_leases removes the leases that have ended.
  local function settle_leases(c, p)
    if c.t > now + p.window then
      local parts, back = {}, c.t - now
      for at = 1, #c.body, ENTRY do
        local till, units = read(ENTRY_FORM, c.body, at)
        parts[#parts + 1] = pack(ENTRY_FORM, till - back, units) .. sub(c.body, at + 11, at + ENTRY - 1)
      end
      c.body, c.b, c.t, c.clamped = table.concat(parts), c.b - back, now, true
    end
    local seen, at = max(now, c.t), 1
    while at < #c.body do
      local till, units = read(ENTRY_FORM, c.body, at)
      if till > seen then
        break
      end
      c.a, at = c.a - units, at + ENTRY
    end
    c.body = sub(c.body, at)
    if #c.body == 0 then
      c.r, c.a, c.b, c.t = 0, 0, 0, 0
      c.stale = true
    else
      c.r = max(c.r, p.as)
    end
  end

  local function load_leases(key, p, v)
    local c = { leases = true, key = key, r = 0, a = 0, b = 0, t = 0, body = '', state = '\0' }
    if not v then
      return c
    end
    c.state = '\4'
    local n = (#v - HEADER) / ENTRY
    if n < 1 or n > MOST or n ~= floor(n) or byte(v) ~= 6 then
      return c
    end
    local _, r, a, b, t = read('<Bi6i7i7i7', v)
    local sum, last = 0, t
    for at = HEADER + 1, #v, ENTRY do
      local till, units = read(ENTRY_FORM, v, at)
      if till < last or units < 1 then
        return c
      end
      sum, last = sum + units, till
    end
    if r < 1 or sum ~= a or last ~= b or t < -140737488355328 or b > 36028797018963967 then
      return c
    end
    c.r, c.a, c.b, c.t, c.body = r, a, b, t, sub(v, HEADER + 1)
    c.state = pack('<BI2', 6, n) .. sub(v, 2)
    settle_leases(c, p)
    return c
  end

  local function store_leases(c)
    local px = '3600000'
    if not passed then
      px = string.format('%d', max(floor((c.b - now) / 1000), 0) + 1001)
    end
    call('SET', c.key, pack('<Bi6i7i7i7', 6, c.r, c.a, c.b, c.t) .. c.body, 'PX', px)
  end

  return {
    load = load_leases, left = left_leases, charge = charge_leases, release = release, adjust = adjust_leases, store = store_leases,
  }
end

-- shared_lease returns the ID of a lease of the key on an overflow counter, as
-- Key.SharedLease does.
local function shared_lease(id, key)
  local form = '<i4i4i4i4'
  local a, b, c, d = read(form, id)
  local w, x, y, z = read(form, key, #key - 15)
  local xor = bit.bxor
  return pack(form, xor(a, w), xor(b, x), xor(c, y), xor(d, z))
end

-- log_functions creates the functions for logs. A script creates all its functions
-- again each time it runs, so only a call with logs creates these.
local function log_functions()
  -- range returns the bytes of a stored log between two offsets.
  local function range(c, from, to)
    local at = from - c.from
    if at >= 0 and to - c.from <= #c.buf then
      return sub(c.buf, at + 1, to - c.from)
    end
    return call('GETRANGE', c.key, from, to - 1)
  end

  -- stored returns the time and the sum of entry i of a stored log. 0 is the oldest
  -- entry within the window.
  local function stored(c, i)
    local from = HEADER + c.dead + ENTRY * i
    local at = from - c.from
    if at >= 0 and at + ENTRY <= #c.buf then
      return read(ENTRY_FORM, c.buf, at + 1)
    end
    return read(ENTRY_FORM, call('GETRANGE', c.key, from, from + ENTRY - 1))
  end

  -- body returns the encoded entries of a log after this call.
  local function body(c)
    local text = c.body
    if not text then
      text = c.n > 0 and range(c, HEADER + c.dead, c.size) or ''
    end
    if c.appended then
      return text .. pack(ENTRY_FORM, c.t, c.sum)
    end
    if c.merged then
      return sub(text, 1, -ENTRY - 1) .. pack(ENTRY_FORM, c.t, c.sum)
    end
    return text
  end

  -- entries decodes a body. It returns the times and the units of the entries.
  local function entries(text, base)
    local ts, us = {}, {}
    for i = 0, #text / ENTRY - 1 do
      local t, sum = read(ENTRY_FORM, text, i * ENTRY + 1)
      ts[i + 1], us[i + 1] = t, sum - base
      base = sum
    end
    return ts, us
  end

  -- rebuild replaces the entries of a log. The sums start from 0 again.
  local function rebuild(c, ts, us)
    local parts, sum = {}, 0
    for i = 1, #ts do
      sum = sum + us[i]
      parts[i] = pack(ENTRY_FORM, ts[i], sum)
    end
    c.body, c.sum, c.a, c.b, c.t = table.concat(parts), sum, sum, #ts, ts[#ts]
    c.appended, c.merged = false, false
  end

  -- carry_log carries over the entries of a log, as Meter.carryCounts does.
  local function carry_log(c, p)
    carries(p, c.r, function(f, share)
      local ts, us = entries(range(c, HEADER + c.dead, c.size), c.sum - c.a)
      local older, newer = #ts, 0
      while older > 0 and ts[older] >= f.till do
        newer, older = newer + us[older], older - 1
      end
      local units, shared = 0, 0
      for i = older, 1, -1 do
        units = units + us[i]
        local carried = min(share(units), MAX_COUNT - newer)
        us[i], shared = carried - shared, carried
      end
      local times, counts = {}, {}
      for i = 1, #ts do
        if us[i] > 0 then
          times[#times + 1], counts[#counts + 1] = ts[i], us[i]
        end
      end
      rebuild(c, times, counts)
      c.buf, c.from, c.dead, c.size, c.n = c.body, HEADER, 0, HEADER + #c.body, c.b
    end)
  end

  -- settle_log clamps a log that is in the future to now, and drops the entries that
  -- have left the window.
  local function settle_log(c, p)
    if c.t > now + p.window then
      local ts, us = entries(range(c, HEADER + c.dead, c.size), c.sum - c.a)
      for i = 1, #ts do
        ts[i] = min(ts[i], now)
      end
      rebuild(c, ts, us)
      c.buf, c.from, c.dead, c.size, c.clamped = c.body, HEADER, 0, HEADER + #c.body, true
    end
    local edge = max(now, c.t) - p.window
    local first, before = stored(c, 0), 0
    if first > edge then
      c.r = max(c.r, p.as)
      return true
    end
    local lo, hi = 0, c.b - 1 -- lo has left the window; hi, the newest entry, has not
    local last = floor((c.from + #c.buf - HEADER - c.dead) / ENTRY) - 1
    if last > 0 and last < hi then
      if stored(c, last) > edge then
        hi = last
      else
        lo = last
      end
    end
    while hi - lo > 1 do
      local mid = floor((lo + hi) / 2)
      if stored(c, mid) > edge then
        hi = mid
      else
        lo = mid
      end
    end
    first, before = stored(c, lo)
    c.a, c.b, c.n, c.dead = c.sum - before, c.b - hi, c.n - hi, c.dead + ENTRY * hi
    if c.body then
      c.body = sub(c.body, ENTRY * hi + 1)
    end
    c.r = max(c.r, p.as)
    return c.a >= 0 and c.a <= MAX_COUNT
  end

  -- load_log reads and settles a log. c.state is its encoded state for the reply.
  local function load_log(key, p, whole)
    local c = { log = true, key = key, r = 0, a = 0, b = 0, t = 0, sum = 0, n = 0, dead = 0, body = '', state = '\0' }
    local buf = redis.pcall('GETRANGE', key, 0, HEADER + SMALL_LOG * ENTRY - 1)
    if type(buf) == 'table' then
      c.state = '\4'
      return c
    end
    if buf == '' then
      return c
    end
    c.state = '\4'
    if #buf < HEADER + ENTRY or byte(buf) ~= 2 then
      return c
    end
    local size = #buf
    if size == HEADER + SMALL_LOG * ENTRY then
      size = call('STRLEN', key)
    end
    local _, r, a, b, t, sum, dead = read(LOG_FORM, buf)
    if r < 1 or t < -140737488355328 or t > 8866461766385664 or a < 0 or a > MAX_COUNT
      or b < 1 or b > MAX_LOG or sum < a or sum > 9007199254740991
      or dead < 0 or size ~= HEADER + dead + b * ENTRY then
      return c
    end
    if max(now, t) - t >= p.window then
      c.state, c.stale = '\0', true -- all has left
      return c
    end
    c.r, c.a, c.b, c.t, c.sum, c.n, c.dead, c.size, c.buf, c.from, c.body = r, a, b, t, sum, b, dead, size, buf, 0, nil
    if dead > 0 and size > #buf then
      c.buf, c.from = call('GETRANGE', key, HEADER + dead, HEADER + dead + SMALL_LOG * ENTRY - 1), HEADER + dead
    end
    if c.r < p.as and p.formers then
      carry_log(c, p)
      if c.b == 0 then
        forget(c)
        c.n, c.state, c.stale = 0, '\0', true
        return c
      end
    end
    if not settle_log(c, p) then
      forget(c)
      c.n, c.clamped = 0, false
      return c
    end
    c.state = pack('<Bi8i8i8i8i8', 2, c.r, c.a, c.b, c.t, c.sum - c.a)
    c.base, c.quota = c.sum - c.a, p.quota
    if whole or c.n <= SMALL_LOG then
      c.state = c.state .. pack('<I2', c.n) .. range(c, HEADER + c.dead, c.size)
      c.whole = true
    end
    return c
  end

  -- oldest returns the state of a long log for the reply, with its oldest entries: as
  -- many as must leave the window until need units are free.
  local function oldest(c)
    if not c.need then
      return c.state .. '\0\0'
    end
    local lo, hi = 0, c.n - 1 -- entries up to hi are enough, or hi is the newest
    while lo < hi do
      local mid = floor((lo + hi) / 2)
      local _, sum = stored(c, mid)
      if sum - c.base >= c.need then
        hi = mid
      else
        lo = mid + 1
      end
    end
    return c.state .. pack('<I2', hi + 1) .. range(c, HEADER + c.dead, HEADER + c.dead + ENTRY * (hi + 1))
  end

  -- charge_log adds a charge to a log.
  local function charge_log(c, p, cost)
    cost = min(cost, MAX_COUNT - c.a)
    if c.r == 0 then
      c.r, c.a, c.b, c.t, c.sum = p.as, 0, 0, now, 0
    end
    c.a, c.sum = c.a + cost, c.sum + cost
    if c.b > 0 and (now <= c.t or c.b >= MAX_LOG) then
      c.merged = true
    else
      c.t, c.b, c.appended = now, c.b + 1, true
    end
    keep(c, p)
  end

  -- refund_log returns units to a log, from the newest entries first.
  local function refund_log(c, cost)
    local ts, us = entries(body(c), c.sum - c.a)
    local last = #ts
    while cost > 0 and last > 0 do
      local back = min(us[last], cost)
      us[last], cost = us[last] - back, cost - back
      if us[last] == 0 then
        ts[last], us[last] = nil, nil
        last = last - 1
      end
    end
    if last == 0 then
      forget(c)
    else
      rebuild(c, ts, us)
    end
  end

  -- adjust_log changes the entry with the time at by delta units.
  local function adjust_log(c, p, delta, at)
    if c.r == 0 then
      return 0
    end
    local ts, us = entries(body(c), c.sum - c.a)
    local i = #ts
    while i > 0 and ts[i] ~= at do
      i = i - 1
    end
    if i == 0 then
      return 0
    end
    delta = min(max(delta, -us[i]), MAX_COUNT - c.a)
    if delta == 0 then
      return 0
    end
    us[i] = us[i] + delta
    if us[i] == 0 then
      table.remove(ts, i)
      table.remove(us, i)
    end
    if #ts == 0 then
      forget(c)
    else
      rebuild(c, ts, us)
    end
    keep(c, p)
    return delta
  end

  local function store_log(c, p)
    local px = '3600000'
    if not passed then
      px = string.format('%d', max(floor((c.t + p.window - now) / 1000), 0) + 1001)
    end
    local head = function(dead)
      return pack(LOG_FORM, 2, c.r, c.a, c.b, c.t, c.sum, dead)
    end
    if c.sum > 4503599627370496 then
      rebuild(c, entries(body(c), c.sum - c.a))
    end
    if c.body or c.b <= SMALL_LOG or c.dead > c.b * ENTRY then
      call('SET', c.key, head(0) .. body(c), 'PX', px)
      return
    end
    local newest = pack(ENTRY_FORM, c.t, c.sum)
    if c.appended then
      call('APPEND', c.key, newest)
    elseif c.merged then
      call('SETRANGE', c.key, c.size - ENTRY, newest)
    end
    call('SETRANGE', c.key, 0, head(c.dead))
    call('PEXPIRE', c.key, px)
  end

  return {
    load = load_log, oldest = oldest, charge = charge_log, refund = refund_log, adjust = adjust_log, store = store_log,
  }
end

-- Load the cells.

local lists = #KEYS - 2 * reservations - markers
local cell_count = lists - record_count
if plain > 0 then
  local values = call('MGET', unpack(KEYS, 1, plain))
  local function open_plain(_, value)
    local c = {}
    c.r, c.a, c.b, c.t, c.state = plain_value(value)
    return c
  end
  for i = 1, plain do
    cells[i] = not values[i] and overflow(KEYS[i], open_plain) or open_plain(nil, values[i])
  end
end
if cell_count - held_count > plain then
  logs = log_functions()
end
local first_held = cell_count - held_count + 1
for i = plain + 1, first_held - 1 do
  local p, whole
  p, whole, pos = read('<I2B', arg, pos)
  local function open_log(key)
    return logs.load(key, params[p + 1], whole == 1)
  end
  local c = open_log(KEYS[i])
  if c.state == '\0' then
    c = overflow(KEYS[i], open_log) or c
  end
  cells[i] = c
end

if held_count > 0 then
  held = lease_functions()
  local values = call('MGET', unpack(KEYS, first_held, cell_count))
  for i = first_held, cell_count do
    local p
    p, pos = read('<I2', arg, pos)
    local function open_leases(key, value)
      return held.load(key, params[p + 1], value)
    end
    local value = values[i - first_held + 1]
    cells[i] = not value and overflow(KEYS[i], open_leases) or open_leases(KEYS[i], value)
  end
end

-- The records. New ones are in new_records, by their number. lifes has the lives in
-- milliseconds of those of reservations.

local records, new_records, repeats, lifes = nil, {}, {}, {}
if record_count > 0 then
  records = call('MGET', unpack(KEYS, cell_count + 1, lists))
end

-- recorded returns the record i, or nil if there is none that has effect.
local function recorded(i)
  local v, known = records[i]
  -- include: record.lua
  return known
end

-- Decide the requests.

local verdicts = {}
-- The cells, parameters, groups and costs of the charges of one decision, whether they
-- fit, and the states for its record.
local cs, ps, gs, ks, fs, states = {}, {}, {}, {}, {}, {}
local ids, ttl = {}, 0 -- the ID of the lease on each cell, and its time to live

-- describe sets the states of the charges from..to for the record.
local function describe(from, to)
  for k = from, to do
    local c, p = cs[k], ps[k]
    local r, a, b, t = c.r, c.a, c.b, c.t
    if not c.log and not c.leases then
      left(c, p)
      r, a, b, t = c.sr, c.sa, c.sb, c.st
    end
    states[k] = pack('<Bi6i7i7i7', fs[k] and 1 or 0, r, a, b, t)
  end
end

-- Grants. spent[k] is by how much grants change the cost of charge k: above 0 for a grant, below 0
-- for its window. It is nil if no charge of the decision is on a grant.
local spent

-- granted returns the number of units that the grants after charge k have left, without what
-- earlier charges of the group take from them, and the index of the last one.
local function granted(k, to)
  local units, last = 0, k
  while last < to and ps[last + 1].kind == GRANT and ps[k].kind ~= GRANT do
    last = last + 1
    units = units + left(cs[last], ps[last]) - cs[last].spent
  end
  return units, last
end

-- spend moves the part of the cost of charge k that its window does not have left to its grants.
local function spend(k, last)
  local need = ks[k] - max(left(cs[k], ps[k]), 0)
  for j = k + 1, last do
    local c = cs[j]
    local units = min(need, left(c, ps[j]) - c.spent)
    if units > 0 then
      c.spent, need = c.spent + units, need - units
      spent[j], spent[k] = units, spent[k] - units
      ks[j], ks[k] = units, ks[k] - units
    end
  end
end

-- fits reports whether all charges from..to fit. It looks at every charge even after
-- one does not fit: clamped states must be stored, and logs need to know how many
-- entries the reply must have.
local function fits(from, to, mode, total, most)
  local all = true
  for k = from, to do
    local c, p, cost = cs[k], ps[k], ks[k]
    local l
    if mode == PEEK then
      l = left(c, p, ids[k])
    else
      l = look(c, p, ids[k])
    end
    local units, last = 0, k
    if spent then
      units, last = granted(k, to)
    end
    if units > 0 then
      l = max(l, 0) + units
    end
    fs[k] = p.quota > 0 and cost <= l
    if mode == TAKE_UP_TO then
      fs[k] = p.quota > 0 and l >= (most > 0 and min(cost, 1) or 1)
    end
    if p.kind == GRANT then
      fs[k] = true
    elseif p.quota == 0 or cost > l then
      all = false
    end
    if last > k and mode ~= TAKE_UP_TO and (fs[k] or mode == FORCE) then
      spend(k, last)
    end
    local need = cost + total - l -- units that must leave the log before the caller's request can fit
    if mode == TAKE_UP_TO then    -- granted at most what is left; the caller may compute when one unit fits
      cost = min(max(cost, 1), p.quota)
      need = cost + min(total, max(l, 0)) - l
    end
    if c.log and cost <= p.quota and need > 0 then
      c.need = max(c.need or 0, need)
    end
  end
  return all
end

-- refund returns cost to a cell. If no state is stored, there is nothing to refund. A
-- state that has expired is deleted, so that it has no effect if the clock steps back.
local function refund(c, p, cost, id)
  if c.leases then
    look(c, p, id)
    if cost > 0 and (c.r ~= 0 or c.stale) then
      held.release(c, p, id, cost)
      keep(c, p)
    end
    return
  end
  if c.shared then
    return -- the overflow counter also has the counts of other keys
  end
  look(c, p)
  if cost == 0 or c.r == 0 and not c.stale then
    return
  end
  if c.log then
    logs.refund(c, cost)
  else
    if p.kind == BUCKET then
      if c.sa + cost < p.x then
        c.sa = c.sa + cost
      else
        c.sa, c.sb = max(c.sa, p.x), 0
      end
    else
      local current = min(c.sa, cost)
      c.sa = c.sa - current
      if p.kind == COUNTER then
        c.sb = max(c.sb - (cost - current), 0)
      end
    end
  end
  keep(c, p)
end

-- take_up_to returns the largest number of units of which the shares of all charges from..to fit,
-- and replaces their costs by these shares. most is the largest of the costs.
local function take_up_to(from, to, most)
  local grant = most
  for k = from, to do
    local l, cost = left(cs[k], ps[k], ids[k]), ks[k]
    local units = spent and granted(k, to) or 0
    if units > 0 then
      l = max(l, 0) + units
    end
    if not fs[k] then
      grant = 0
    elseif l < cost then
      grant = min(grant, (mul_add_div(l, most, 0, cost)))
    end
  end
  for k = from, to do
    if ks[k] > 0 and grant < most then
      ks[k] = mul_add_div(ks[k], grant, most - 1, most)
    end
  end
  for k = from, spent and grant > 0 and to or 0 do
    local _, last = granted(k, to)
    if last > k then
      spend(k, last)
    end
  end
  return grant
end

-- decide decides the decision at pos, which has n charges. With record, it stores a new
-- record under this number; identity has the first fields of that record.
local function decide(mode, n, id, record, identity)
  local total = 0
  spent = nil
  for k = 1, n do
    local c, p
    c, p, gs[k], ks[k], pos = read('<I2I2I2i8', arg, pos)
    cs[k], ps[k] = own(c + 1, params[p + 1]), params[p + 1]
    spent = spent or ps[k].kind == GRANT and {}
    ids[k] = cs[k].leases and (cs[k].shared and shared_lease(id, KEYS[c + 1]) or id)
    total = total + ks[k]
    if cs[k].shared and mode ~= TAKE_UP_TO then -- charges of one group on one overflow counter become one charge
      for j = 1, k - 1 do
        if cs[j] == cs[k] and gs[j] == gs[k] then
          ks[j], ks[k] = ks[j] + ks[k], 0
          break
        end
      end
    end
  end

  for k = 1, spent and n or 0 do
    spent[k], cs[k].spent = 0, 0
  end

  local verdict, units, whole = '\1', 0, 0
  if mode ~= REFUND and mode ~= RESET and mode ~= RELEASE then
    local write, from = mode ~= PEEK, 1
    while from <= n do
      local to = from
      while to < n and gs[to + 1] == gs[from] do
        to = to + 1
      end
      for k = from, spent and to or 0 do
        cs[k].spent = 0 -- an earlier group has charged it
      end
      for k = from, units < whole and write and to or 0 do
        ks[k] = mul_add_div(ks[k], units, whole - 1, whole) -- only the part that group 0 took
      end
      local most = mode == TAKE_UP_TO and max(unpack(ks, from, to))
      local fit = fits(from, to, mode, total, most) or mode == FORCE
      if mode == TAKE_UP_TO then
        local grant = take_up_to(from, to, most)
        fit = grant > 0
        if gs[from] == 0 then
          units, whole = grant, most
        end
      end
      if fit and write then
        for k = from, to do
          charge(cs[k], ps[k], ks[k], ids[k], ttl)
        end
      elseif not fit and gs[from] == 0 then
        verdict, write = '\2', false
      end
      for k = from, spent and not fit and to or 0 do
        spent[k] = 0
      end
      if record then
        describe(from, to)
      end
      from = to + 1
    end
  elseif mode == REFUND then
    for k = 1, n do
      refund(cs[k], ps[k], ks[k], ids[k])
    end
  elseif mode == RELEASE then
    for k = 1, n do
      look(cs[k], ps[k], ids[k])
      if cs[k].leases then
        held.release(cs[k], ps[k], ids[k])
      end
    end
  else
    for k = 1, n do
      if not cs[k].shared then
        forget(cs[k])
        cs[k].dirty, cs[k].clamped = true, false
      end
    end
  end

  if record and verdict == '\1' and mode ~= PEEK then
    local value = '\3' .. identity .. pack(RECORD_FORM, now, units, n) .. table.concat(states, '', 1, n)
    records[record], new_records[record] = value, value
  end
  return verdict
end

local list_changes, reserve, change_lists = {}, nil, nil
if reservations > 0 then
  -- include: reservation.lua
end

for d = 1, decision_count do
  local mode, n
  mode, n, pos = read('<BI2', arg, pos)
  local keyed, reserves, id = mode >= 128, mode >= 192, nil
  mode = mode % 64
  if mode >= 32 then
    id, ttl, mode, pos = sub(arg, pos, pos + 15), read('<i8', arg, pos + 16), mode - 32, pos + 24
  end
  if not keyed then
    verdicts[d] = decide(mode, n, id)
  else
    local record = read('<I2', arg, pos) + 1
    local identity, known = sub(arg, pos + 2, pos + 49), recorded(record)
    pos = pos + 50
    if reserves then
      verdicts[d], pos = reserve(mode, n, id, record, identity)
    elseif not known then
      verdicts[d] = decide(mode, n, id, record, identity)
    else
      pos = pos + 14 * n
      verdicts[d] = '\4'
      if sub(known, 2, 17) == sub(identity, 1, 16) then
        verdicts[d] = '\3'
        repeats[#repeats + 1] = sub(known, 18)
      end
    end
  end
end

-- Build the reply before the logs change.

local reply = { pack('<Bi8', 1, real), table.concat(verdicts) }
for i = 1, cell_count do
  local c = cells[i]
  local state = c.state
  if c.log and c.n > 0 and not c.whole then
    state = logs.oldest(c)
  end
  reply[i + 2] = c.shared and '\5' .. state or state
end
reply[cell_count + 3] = table.concat(repeats)

-- Store the new records and the changed cells.

for i = 1, record_count do
  if new_records[i] then
    local life = lifes[i] and string.format('%.0f', lifes[i] + 1000) or RECORD_LIFE
    call('SET', KEYS[cell_count + i], new_records[i], 'PX', passed and '3600000' or life)
  end
end

for i = 1, cell_count do
  local c = cells[i]
  if c.dirty and c.r ~= 0 then
    local key = c.key or KEYS[i]
    c.dirty = false -- an overflow counter that replaces several cells is stored once
    if c.log then
      logs.store(c, c.by)
    elseif c.leases then
      held.store(c)
    else
      local param, place, r, a, b, t, shared = c.by.at, 0, c.r, c.a, c.b, c.t, c.shared
      local value, life
      -- include: encode_value.lua
      if life then
        call('SET', key, value, 'PX', life)
      else
        call('SET', key, value, 'KEEPTTL')
      end
    end
  end
end
for i = 1, cell_count do
  local c = cells[i]
  if c.dirty and c.r == 0 then
    call('DEL', KEYS[i])
  end
end
if change_lists then
  change_lists()
end
return table.concat(reply)
