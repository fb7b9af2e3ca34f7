-- keys: adds the changes that a node reports to the number of live keys of one limit of
-- a tenant. If the limit has as many keys as it may have, the script marks it as full for
-- 5 seconds. If it has so many that no limit of the tenant may have more, it marks the tenant.
--
--   KEYS     the counts of the limit, and the markers F of the limit and of the tenant (full.lua).
--
--   ARGV     the length of a time interval in microseconds; how many keys the limit may
--            have; with how many keys the tenant is full; the most bytes of a key, which the
--            script only stores; then pairs: the number of an interval, and the change of the
--            number of keys that expire in it.
--
--   reply    the number of live keys of the limit.
--
-- The value is the length of the intervals with the bytes of a key, then the number of
-- each interval with its keys. The script drops intervals that have ended. If the stored length differs, the
-- numbers of the limit changed, and the script starts again from zero.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local width, room, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local counts, value = {}, redis.pcall('GET', KEYS[1])
if type(value) == 'string' then
  local was, rest = string.match(value, '^(%d+)(.*)$') -- the bytes are in rest, and have no space before
  if was == ARGV[1] then
    for part, n in string.gmatch(rest, ' (%d+):(%-?%d+)') do
      counts[tonumber(part)] = tonumber(n)
    end
  end
end
for i = 5, #ARGV, 2 do
  local part = tonumber(ARGV[i])
  counts[part] = (counts[part] or 0) + tonumber(ARGV[i + 1])
end
local first, last, live = math.floor(now / width), 0, 0
local texts = { ARGV[1] .. ',' .. ARGV[4] }
for part, n in pairs(counts) do
  if part >= first and n ~= 0 then
    live, last = live + n, math.max(last, part)
    texts[#texts + 1] = string.format('%.0f:%.0f', part, n)
  end
end
if last > 0 then
  redis.call('SET', KEYS[1], table.concat(texts, ' '), 'PX', string.format('%.0f', ((last + 1) * width - now) / 1000 + 1000))
end
if live >= room then
  redis.call('SET', KEYS[2], '1', 'PX', 5000)
end
if live >= most then
  redis.call('SET', KEYS[3], '1', 'PX', 5000)
end
return math.max(live, 0)
