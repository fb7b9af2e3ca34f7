-- pulse: tries a write, and detects whether the server has lost data.
--
--   KEYS     the marker of all nodes, the marker of the calling node, and the marker of
--            durable.lua. A new epoch deletes the last one.
--
--   ARGV     a new epoch (hexadecimal); then the epoch and the number from the node's
--            last pulse, "" and 0 before the first one.
--
--   reply    epoch, number, kind, newest, and the error of a failed write, or "". With
--            an error, the other fields are not valid.
--
-- The marker of all nodes stores epoch, kind and newest. The marker of a node stores a
-- number that each pulse increments, and the time of the last pulse by the server's
-- clock in microseconds. The script starts a new epoch in two cases. If the marker of
-- all nodes is absent, the kind is "empty". If the server no longer has the last pulse
-- of the calling node, the kind is "older". newest is then the time of the last pulse
-- of this node that the server still has, or 0.

local function get(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value or ''
end

local epoch, kind, newest = string.match(get(KEYS[1]), '^(%x+) (%a+) (%d+)$')
local number, at = string.match(get(KEYS[2]), '^(%d+) (%d+)$')
number, at = tonumber(number) or 0, tonumber(at) or 0
local known, last = ARGV[2], tonumber(ARGV[3])
local changed = true
if not epoch then
  epoch, kind, newest = ARGV[1], 'empty', 0
elseif epoch == known and number < last then
  epoch, kind, newest = ARGV[1], 'older', at
else
  changed = false
end
number = math.max(number, last) + 1
local time = redis.call('TIME')
local set = redis.pcall('SET', KEYS[2], string.format('%.0f %.0f', number, time[1] * 1000000 + time[2]), 'PX', 86400000)
if set.err then
  return { '', 0, '', 0, set.err }
end
if changed then
  redis.call('DEL', KEYS[3])
  redis.call('SET', KEYS[1], string.format('%s %s %.0f', epoch, kind, newest))
end
return { epoch, number, kind, tonumber(newest), '' }
