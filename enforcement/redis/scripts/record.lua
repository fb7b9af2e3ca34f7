-- Finds the record of an idempotent request. The form of a record is that of take.lua.
-- known becomes v if v is a record that has effect; otherwise it stays nil.
if v and string.byte(v) == 3 and #v >= 67 then
  local from, _, charges = read(RECORD_FORM, v, 50)
  if #v == 67 + 28 * charges and now < from + 1000 * RECORD_LIFE then
    known = v
  end
end
