-- batch: decides requests of the most common form in one call. The requests have mode
-- enforce and no shadow groups. All their cells are plain, and each cell has one
-- parameter. The decisions are the same as those of take.lua. All numbers are
-- little-endian; u1, u2, u4 and i8 are unsigned and signed integers of so many bytes.
--
--   KEYS     the distinct cells, at most 255; then the records of idempotent requests;
--            then, if a request is durable, the marker of durable.lua.
--
--   ARGV[1]  head       deadline i8 (by the clock of Redis; 0: none), passed u1 (1: the
--                       next field replaces the clock), clock i8, number of decisions
--                       u2, number of costs u1, number of records u1, number of markers
--                       u1, positions of the identities u4 and of the costs u4, from 1
--            parameters in the form of cell.lua, followed by their former numbers
--            identities for each idempotent decision the three fields of take.lua
--            costs      the distinct costs, i8 each
--            cells      for each cell the index of its parameter u1, from 0
--            decisions  number of charges u1; for each charge the index of the cell u1
--                       and of the cost u1, from 1. A decision lists a cell once. The
--                       number is 0 for one charge of a cell that no other charge uses.
--                       An idempotent decision begins with 255 and the number of its
--                       record u1, from 1. All its costs are above 0.
--
--   reply    as for take.lua; or 2 u1 and the clock of Redis i8: a tenant is full, the
--            script did nothing, and take.lua must decide.
--
-- The script decides all requests before it writes. The first write is a SET or a
-- SETRANGE of a string. If Redis cannot write, it fails that first write, so that a
-- call is applied completely or not at all.

local arg, keys, byte = ARGV[1], KEYS, string.byte
local time = call('TIME')
local real = time[1] * 1000000 + time[2]
local deadline, passed, now, decisions, costs, records, markers, id, pos, params = read('<i8Bi8I2BBBI4I4', arg)
if deadline ~= 0 and real > deadline then
  return pack('<Bi8', 0, real)
end
passed = passed == 1
if not passed then
  now = real
end

local n = #keys - records - markers
local values = call('MGET', unpack(keys))
if markers == 1 and not values[#keys] then -- as in durable.lua, without another command
  return pack('<Bi8', 3, real)
end
local cost_of = {}
for i = 1, costs do
  cost_of[i], pos = read('<i8', arg, pos)
end
local said, at = { byte(arg, pos, -1) }, n + 1 -- the parameters of the cells, then the decisions

-- Decide the requests. The script settles a cell when the first charge uses it, and
-- replaces its entry in values by the state for the reply. For a cell that only one
-- charge uses, writes and lives get the new value and its expiry at once, from
-- encode_value.lua. For the other cells, lefts has the number of units that can still be
-- charged. settled has five entries for each cell, from index 5*cell: the units that
-- could be charged at first, a, b, t and place. revs and cuts are set only for cells
-- that settle_fast.lua cannot settle. caps is set for a bucket that has more units than these
-- numbers allow, because later numbers stored it: the most that one decision can be charged.
-- repeats has the records that decide, and made the indexes in keys of the new ones.
-- skipped has the cells of decisions that a record made.
local repeats, skipped, made
local writes, lives, lefts, settled, revs, cuts, caps = {}, {}
local parameter, opened, checked, shared
local last, kind, rev, x, y, z
local reply = { pack('<Bi8', 1, real) }
for d = 1, decisions do
  local verdict, charges = '\1', said[at]
  local record, identity, known
  if charges == 255 then
    record, charges, at = n + said[at + 1], said[at + 2], at + 2
    identity, id = string.sub(arg, id, id + 47), id + 48
    local v = values[record]
    -- include: record.lua
  end
  local own = charges == 0
  local till = at + 2
  if not own then
    till = at + 2 * charges
    if not lefts then
      lefts, settled = {}, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    end
  end
  if known then
    verdict, repeats, skipped = '\4', repeats or {}, skipped or {}
    for k = at + 1, till, 2 do
      skipped[#skipped + 1] = said[k]
    end
    if string.sub(known, 2, 17) == string.sub(identity, 1, 16) then
      verdict, repeats[#repeats + 1] = '\3', string.sub(known, 18)
    end
  end
  for k = at + 1, known and at or till, 2 do
    local i, cost = said[k], cost_of[said[k + 1]]
    local l = lefts and lefts[i]
    if not l then
      local param = params + 62 * said[i]
      if param ~= last then
        kind, rev, x, y, z = read('<Bi8i8i8i8', arg, param)
        last = param
      end
      local v = values[i]
      local a, b, t, place, r, cut
      if not v then
        local name = keys[i]
        -- include: full.lua
      end
      -- include: settle_fast.lua
      if not l then
        if not parameter then
          parameter, opened = settling(now)
        end
        l, a, b, t, place, v, r, cut = opened(parameter(arg, param), v)
        if not own and kind == BUCKET and l >= 0 and a > l then
          caps = caps or {}
          caps[i], l = l, a
        end
        values[i] = v
      elseif not v then
        values[i] = '\0'
      end
      if not own then
        local s = 5 * i
        lefts[i], settled[s], settled[s + 1], settled[s + 2], settled[s + 3], settled[s + 4] = l, l, a, b, t, place
        if r then
          revs, cuts = revs or {}, cuts or {}
          revs[i], cuts[i] = r, cut
        end
      elseif cut or cost > 0 and cost <= l then
        if cost <= l then
          if place >= 2 then
            a = a - cost
          else
            a = a + cost
          end
        end
        local value, life
        -- include: encode_value.lua
        writes[i], lives[i] = value, life
      end
    end
    if cost > l or caps and cost > (caps[i] or cost) then
      verdict = '\2'
    end
  end
  if not own and verdict == '\1' then
    for k = at + 1, till, 2 do
      local i = said[k]
      lefts[i] = lefts[i] - cost_of[said[k + 1]]
    end
    if record then
      local states = { '\3', identity, pack(RECORD_FORM, now, 0, charges) }
      for k = at + 1, till, 2 do
        local i = said[k]
        local s = 5 * i
        local charged = settled[s] - lefts[i]
        if settled[s + 4] >= 2 then
          charged = -charged
        end
        local r = revs and revs[i] or read('<i8', arg, params + 62 * said[i] + 1)
        states[#states + 1] = pack(PLAIN_FORM, 1, r, settled[s + 1] + charged, settled[s + 2], settled[s + 3])
      end
      made = made or {}
      made[#made + 1], values[record] = record, table.concat(states)
    end
  end
  reply[d + 1] = verdict
  at = till + 1
end
for k = 1, skipped and #skipped or 0 do
  if not lefts[skipped[k]] then
    values[skipped[k]] = '\0' -- no decision read the cell
  end
end
reply[decisions + 2] = table.concat(values, '', 1, n)
reply[decisions + 3] = repeats and table.concat(repeats)

-- Store the new records and the changed cells.

for i = 1, made and #made or 0 do
  call('SET', keys[made[i]], values[made[i]], 'PX', passed and '3600000' or RECORD_LIFE)
end

for i = 1, n do
  local value, life = writes[i], lives[i]
  local l = lefts and lefts[i]
  if l then
    local s = 5 * i
    local charged, place, cut = settled[s] - l, settled[s + 4], cuts and cuts[i]
    if charged > 0 or cut then
      if place >= 2 then
        charged = -charged
      end
      local param, a, b, t, r = params + 62 * said[i], settled[s + 1] + charged, settled[s + 2], settled[s + 3], revs and revs[i]
      -- include: encode_value.lua
    end
  end
  if life then
    call('SET', keys[i], value, 'PX', life)
  elseif value then
    if #value < 28 then
      call('SETRANGE', keys[i], '7', value)
    else
      call('SET', keys[i], value, 'KEEPTTL')
    end
  end
end
return table.concat(reply)
