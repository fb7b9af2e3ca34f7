-- identity returns what the marker must have on this server: the server's run_id, and the
-- epoch of pulse.lua. Without the permission for INFO, the run_id is left out.
local function get(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value or ''
end

local function identity(epoch_key)
  local info = redis.pcall('INFO', 'server')
  local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
  return run .. ' ' .. (string.match(get(epoch_key), '^(%x+)') or '')
end
