-- single: decides one request with mode enforce and one charge on one plain cell. The
-- decision is the same as that of batch.lua. All numbers are little-endian.
--
--   KEYS     the cell; if it is durable, the marker of durable.lua.
--
--   ARGV[1]  deadline i8 (by the clock of Redis; 0: none), passed u1 (1: the next field
--            replaces the clock), clock i8, cost i8, a parameter in the form of
--            cell.lua, and its former numbers.
--
--   reply    as for take.lua; or 2 u1 and the clock of Redis i8: the tenant is full, the
--            script did nothing, and take.lua must decide.

local arg, key, param = ARGV[1], KEYS[1], 26
local time = call('TIME')
local real = time[1] * 1000000 + time[2]
local deadline, passed, now, cost, kind, rev, x, y, z = read('<i8Bi8i8Bi8i8i8i8', arg)
if deadline ~= 0 and real > deadline then
  return pack('<Bi8', 0, real)
end
passed = passed == 1
if not passed then
  now = real
end

local marker = KEYS[2]
-- include: durable.lua

local v = redis.pcall('GET', key) -- for a value of another type, pcall returns an error, which is an empty table
if not v then
  local name, checked = key
  -- include: full.lua
end
local l, a, b, t, place, r, cut
-- include: settle_fast.lua
if not l then
  local parameter, opened = settling(now)
  l, a, b, t, place, v, r, cut = opened(parameter(arg, param), v)
end

local verdict, charged, shared = 2, 0
if cost <= l then
  verdict, charged = 1, cost
end
if charged > 0 or cut then
  if place >= 2 then
    charged = -charged
  end
  a = a + charged
  local value, life
  -- include: encode_value.lua
  if life then
    call('SET', key, value, 'PX', life)
  elseif #value < 28 then
    call('SETRANGE', key, '7', value)
  else
    call('SET', key, value, 'KEEPTTL')
  end
end
return pack('<Bi8Bc0', 1, real, verdict, v or '\0')
