-- revoked: adds ends of API keys to the list of revoked keys.
--
--   KEYS     the list.
--
--   ARGV     the time up to which the list forgets ends, in microseconds since the epoch;
--            the largest number of entries; the life of the list in milliseconds; 1 if the
--            caller passes all ends after that time, or 0 for some of them; then pairs: the
--            ID of a key, and the time at which it ends.
--
--   reply    the number of entries, or -1 if there is no list and the caller passed only
--            some ends. The script then does nothing.
--
-- The value is the time from which on the list is complete, then each ID and its time. If
-- a key has several ends, the earliest one counts. If there are too many entries, the
-- script drops those with the earliest ends.

local oldest, most, all = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4] == '1'
local value = redis.pcall('GET', KEYS[1])
local from, rest
if type(value) == 'string' then
  from, rest = string.match(value, '^(%d+)(.*)$')
end
if not from and not all then
  return -1
end
local complete = oldest
if not all then
  complete = math.max(oldest, tonumber(from))
end
local ends, ids = {}, {}
local function add(id, at)
  if at > oldest and not ends[id] then
    ids[#ids + 1] = id
  end
  if at > oldest then
    ends[id] = math.min(at, ends[id] or at)
  end
end
for id, at in string.gmatch(rest or '', ' (%S+) (%d+)') do
  add(id, tonumber(at))
end
for i = 5, #ARGV, 2 do
  add(ARGV[i], tonumber(ARGV[i + 1]))
end
if #ids > most then
  table.sort(ids, function(a, b)
    return ends[a] > ends[b] or ends[a] == ends[b] and a < b
  end)
  complete = math.max(complete, ends[ids[most + 1]])
end
local texts = {}
for i = 1, math.min(#ids, most) do
  texts[i] = string.format(' %s %.0f', ids[i], ends[ids[i]])
end
redis.call('SET', KEYS[1], string.format('%.0f', complete) .. table.concat(texts), 'PX', ARGV[3])
return #texts
