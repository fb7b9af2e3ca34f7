-- keys: adds up how many live keys a tenant has of one limit, from what nodes saw
-- being made, and marks the tenant as full.
--
-- KEYS     the counts of the limit, and the marker F of full.lua.
--
-- ARGV     the width of a part of time in microseconds; how many keys there may be
--          beside those of the tenant's other limits;
--          then pairs of the number of a part of time and by how many the keys
--          changed that expire in it.
--
-- reply    how many keys live.
--
-- The value is the width, and the number of each part with its keys. Parts that
-- are over are dropped. A value of another width is of other numbers of the limit:
-- it is begun again.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local width, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local counts, value = {}, redis.pcall('GET', KEYS[1])
if type(value) == 'string' then
  local was, rest = string.match(value, '^(%d+)(.*)$')
  if was == ARGV[1] then
    for part, n in string.gmatch(rest, ' (%d+):(%-?%d+)') do
      counts[tonumber(part)] = tonumber(n)
    end
  end
end
for i = 3, #ARGV, 2 do
  local part = tonumber(ARGV[i])
  counts[part] = (counts[part] or 0) + tonumber(ARGV[i + 1])
end
local first, last, live = math.floor(now / width), 0, 0
local texts = { ARGV[1] }
for part, n in pairs(counts) do
  if part >= first and n ~= 0 then
    live, last = live + n, math.max(last, part)
    texts[#texts + 1] = string.format('%.0f:%.0f', part, n)
  end
end
if last > 0 then
  redis.call('SET', KEYS[1], table.concat(texts, ' '), 'PX', string.format('%.0f', ((last + 1) * width - now) / 1000 + 1000))
end
if live >= most then
  redis.call('SET', KEYS[2], '1', 'PX', 5000)
end
return math.max(live, 0)
