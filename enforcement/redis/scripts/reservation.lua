-- Reservations: creates, reads and changes their records, and keeps the lists of those
-- that have not ended. take.lua includes this text, and runs it only for a call with
-- reservations.
--
-- A record is u1 5, then as the record of an idempotent request the three fields of the
-- decision, its time i8, units i8 (0), the number of charges u2, and the charges; then the
-- fields that change: version u4, open u1, until i8, changed i8, kept i8, and for each
-- charge the units that ADJUST charged or returned i8; at the end the data, which the
-- script does not read. It has effect until kept microseconds after the end of the
-- reservation.
--
-- The lists are sorted sets: one for each tenant, whose members are the partitions of the
-- records, and one for each home, whose members are the tenant u4 and the partition. The
-- scores are the ends. Their names are the last ones in KEYS, two for each reservation.

local HEAD_FORM, HEAD = '<I4Bi8i8i8', 29

-- reserved returns a record decoded, or nil if there is none that has effect. head is the
-- position of the fields that change.
local function reserved(v)
  if not v or byte(v) ~= 5 or #v < 67 + HEAD then
    return nil
  end
  local _, _, charges = read(RECORD_FORM, v, 50)
  local head = 68 + 28 * charges
  local data = head + HEAD + 8 * charges
  if #v < data - 1 then
    return nil
  end
  local r = { value = v, charges = charges, head = head, data = data }
  r.version, r.open, r.till, r.changed, r.kept = read(HEAD_FORM, v, head)
  if now >= (r.open == 1 and r.till or r.changed) + r.kept then
    return nil
  end
  return r
end

-- adjust changes a charge, as Meter.Adjust does. was, r, a, b, t and capacity are those of
-- the receipt. It returns the units by which the charge changed. id is the ID of the lease
-- on a concurrency limit.
local function adjust(c, p, cost, was, r, a, b, t, capacity, id)
  local delta = cost - was
  look(c, p, id)
  if c.leases then
    return held.adjust(c, p, cost, was, id, ttl)
  end
  if p.kind == GRANT and now >= p.z then
    return 0
  end
  if delta == 0 or c.shared and delta < 0 then
    return 0
  end
  if was == 0 then
    charge(c, p, delta)
    return delta
  end
  local rev = c.log and c.r or c.sr
  if delta < 0 and rev > p.as and r < rev then
    return 0
  end
  if c.log then
    return logs.adjust(c, p, delta, t)
  end
  if p.kind == BUCKET then
    local before, after = c.sa, c.sa
    if delta > 0 then
      after = min(before, max(before - delta, -p.room - max(p.x + p.room, 1)))
    elseif c.r ~= 0 then
      local _, alone = settle(p, r, a, b, t)
      local _, full = settle(p, r, capacity, 0, t)
      after = max(min(before + min(-delta, max(min(full, p.x) - alone, 0)), p.x), before)
    end
    if after ~= before then
      c.sa = after
      if after >= p.x then
        c.sb = 0
      end
      keep(c, p)
    end
    return before - after
  end
  if c.sr == 0 then
    return 0
  end
  local field = nil
  if p.kind == CALENDAR then
    local middle = t + floor(min((window_of(b)), p.window) / 2)
    local start = calendar(p, middle)
    field = start == c.st and 'sa'
  elseif c.st == t then
    field = 'sa'
  elseif p.kind == COUNTER and c.st == t + p.window then
    field = 'sb'
  end
  if not field then
    return 0
  end
  local before = c[field]
  c[field] = min(max(before + delta, 0), MAX_COUNT)
  if c[field] ~= before then
    keep(c, p)
  end
  return c[field] - before
end

-- take_from_grants changes the costs of charges, as AdjustedCosts does: if the cost of a window rises
-- by more than the window has left, the grants after it take what they have left.
local function take_from_grants(charges)
  local need, window = 0, nil
  for k = 1, #charges do
    local x = charges[k]
    if x.p.kind ~= GRANT then
      window, need = x, x.cost - x.was
      if need > 0 and charges[k + 1] and charges[k + 1].p.kind == GRANT then
        need = need - min(need, max(left(x.c, x.p), 0))
      end
    elseif need > 0 then
      local units = min(need, left(x.c, x.p))
      x.cost, window.cost, need = x.cost + units, window.cost - units, need - units
    end
  end
end

local number = 0 -- of the last reservation in the call
local added = {} -- by list: reservations that this call adds, less those that it ends

-- reserve decides the decision at pos, which has n charges and a reservation. It returns the
-- verdict and the position of the next decision.
reserve = function(mode, n, lease, record, identity)
  local tenant, version, flags, life, kept, most, first, size
  tenant, version, flags, life, kept, most, first, size, pos = read('<I4I4Bi8i8i8I2I4', arg, pos)
  local data = sub(arg, pos, pos + size - 1)
  pos = pos + size
  number = number + 1
  local of_tenant, of_home = KEYS[lists + 2 * number - 1], KEYS[lists + 2 * number]
  local ends, due = flags % 2 == 1, flags >= 2
  local member = sub(KEYS[cell_count + record], -16)
  local known = reserved(records[record])
  local after = pos + (mode == ADJUST and 66 or 14) * n

  if mode == PEEK or known and mode ~= ADJUST then
    if not known then
      return '\5', after
    end
    if mode ~= PEEK and sub(known.value, 2, 17) ~= sub(identity, 1, 16) then
      return '\4', after
    end
    repeats[#repeats + 1] = pack('<I4', #known.value) .. known.value
    return '\3', after
  end

  local value
  if mode == ADJUST then
    if not known or known.open == 0 or known.version ~= version or due ~= (now >= known.till) then
      if due and not (known and known.open == 1) then
        list_changes[#list_changes + 1] = { of_tenant, of_home, member, tenant }
      end
      return '\5', after
    end
    local applied, charges = {}, {}
    for i = 1, known.charges do
      applied[i] = sub(known.value, known.head + HEAD + 8 * (i - 1), known.head + HEAD + 8 * i - 1)
    end
    for k = 1, n do
      local x = {}
      x.i, x.p, x.group, x.cost, x.was, x.r, x.a, x.b, x.t, x.capacity, x.index, pos = read('<I2I2I2i8i8i8i8i8i8i8I4', arg, pos)
      x.p = params[x.p + 1]
      x.c = own(x.i + 1, x.p)
      charges[k] = x
    end
    take_from_grants(charges)
    for k = 1, n do
      local x = charges[k]
      local c = x.c
      local id = c.leases and (c.shared and shared_lease(lease, KEYS[x.i + 1]) or lease)
      local delta = adjust(c, x.p, x.cost, x.was, x.r, x.a, x.b, x.t, x.capacity, id)
      if x.index < known.charges then
        if not c.leases then -- otherwise was is the cost of the request
          delta = delta + read('<i8', applied[x.index + 1])
        end
        applied[x.index + 1] = pack('<i8', delta)
      end
    end
    local till = ends and known.till or now + life
    if ends and not due then
      added[of_tenant] = (added[of_tenant] or 0) - 1
    end
    value = sub(known.value, 1, known.head - 1)
      .. pack(HEAD_FORM, (version + 1) % 4294967296, ends and 0 or 1, till, now, kept)
      .. table.concat(applied) .. data
  else
    local earlier = first > 0 and recorded(first)
    if earlier then
      if sub(earlier, 2, 17) ~= sub(identity, 1, 16) then
        return '\4', after
      end
      repeats[#repeats + 1] = pack('<I4', #earlier) .. earlier
      return '\3', after
    end
    if most > 0 then
      local count = redis.pcall('ZCOUNT', of_tenant, string.format('(%.0f', now), '+inf')
      if type(count) ~= 'number' then
        count = 0
      end
      if count + (added[of_tenant] or 0) >= most then
        return '\6', after
      end
    end
    first = first > 0 and first or record
    local verdict = decide(mode, n, lease, first, identity)
    if verdict ~= '\1' then
      return verdict, after
    end
    value = '\5' .. sub(new_records[first], 2) .. pack(HEAD_FORM, 1, 1, now + life, now, kept)
      .. (spent and pack('<' .. string.rep('i8', n), unpack(spent, 1, n)) or string.rep('\0', 8 * n)) .. data
    if most > 0 then
      added[of_tenant] = (added[of_tenant] or 0) + 1
    end
  end
  records[record], new_records[record] = value, value
  lifes[record] = ((ends and 0 or life) + kept) / 1000
  if most > 0 then
    list_changes[#list_changes + 1] = { of_tenant, of_home, member, tenant, not ends and now + life }
  end
  return '\1', after
end

-- change_lists adds, moves and removes the members of the lists. A list of another type is
-- replaced.
change_lists = function()
  for i = 1, #list_changes do
    local of_tenant, of_home, member, tenant, till = unpack(list_changes[i])
    for list, name in pairs({ [of_tenant] = member, [of_home] = pack('<I4', tenant) .. member }) do
      local done
      if till then
        done = redis.pcall('ZADD', list, string.format('%.0f', till), name)
      else
        done = redis.pcall('ZREM', list, name)
      end
      if till and type(done) == 'table' and done.err then
        call('DEL', list)
        call('ZADD', list, string.format('%.0f', till), name)
      end
    end
  end
end
