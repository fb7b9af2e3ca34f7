-- restore: stores states of the journal that are newer than those of the cells. Stored.Newer
-- in Go says which is newer.
--
--   KEYS     the lock of the restoration, then the cells.
--
--   ARGV     the token of the lock; the time in milliseconds for which the lock is kept;
--            then for each cell: bucket u1 (1: a bucket), the value in the form of cell.lua,
--            the time at which the counter is as if unused i8, and the time of the decision
--            i8. The revision of a reset counter is 0.
--
--   reply    the number of cells that were changed, or -1 if the caller no longer has the
--            lock. Then nothing was changed.

local read, pack, call = struct.unpack, struct.pack, redis.call
local PLAIN_FORM = '<Bi6i7i7i7'

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local time = call('TIME')
local now, changed = time[1] * 1000000 + time[2], 0
for i = 2, #KEYS do
  local bucket, _, r, a, b, t, ends, at = read('<BBi6i7i7i7i8i8', ARGV[i + 1])
  local has = redis.pcall('GET', KEYS[i])
  local newer = r ~= 0 and ends > now
  if type(has) == 'string' and #has == 28 and string.byte(has) == 1 then
    local _, r2, a2, _, t2 = read(PLAIN_FORM, has)
    if r == 0 then
      newer = t2 <= at
    elseif ends <= now then
      newer = false
    elseif t ~= t2 then
      newer = t > t2
    elseif r ~= r2 then
      newer = r > r2
    elseif bucket == 1 then
      newer = a < a2
    else
      newer = a > a2
    end
  end
  if newer then
    changed = changed + 1
    if r == 0 then
      call('DEL', KEYS[i])
    else
      call('SET', KEYS[i], pack(PLAIN_FORM, 1, r, a, b, t),
        'PX', string.format('%d', math.min((ends - now) / 1000, 9007199254740) + 1002))
    end
  end
end
return changed
