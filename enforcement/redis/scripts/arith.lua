-- Integer arithmetic with Lua numbers, which are doubles: exact for integers below
-- 2^53, but not above. This text is part of each script that counts. The Go functions
-- with the same names in package enforcement are the reference.

local floor = math.floor
local FOREVER = 9007199254740992 -- 2^53 microseconds: the longest time

-- mul_add_div returns floor((a*b + c) / m) and the remainder, for integers 0 <= a <
-- 2^53, 0 <= b < 2^45, 0 <= c < 2^50, 0 < m < 2^45. It returns nil if the quotient is
-- about 2^53 or larger. If the product is above 2^53, the floating-point quotient is
-- still right to within a few units. The error is a*b + c - quotient*m divided by m.
-- That difference is small. It is summed in limbs of 26 bits, so that each step is
-- exact.
local function mul_add_div(a, b, c, m)
  local p = a * b + c
  local q = floor(p / m)
  if p < 9007199254740992 then
    return q, p - q * m
  end
  if q >= 9007199254740976 then
    return nil
  end
  local a1, b1, m1, q1 = floor(a / 67108864), floor(b / 67108864), floor(m / 67108864), floor(q / 67108864)
  local a0, b0, m0, q0 = a - a1 * 67108864, b - b1 * 67108864, m - m1 * 67108864, q - q1 * 67108864
  local r = (((a1 * b1 - q1 * m1) * 67108864 + (a1 * b0 - q1 * m0)) + (a0 * b1 - q0 * m1)) * 67108864
    + (a0 * b0 - q0 * m0 + c)
  while r < 0 do
    q, r = q - 1, r + m
  end
  while r >= m do
    q, r = q + 1, r - m
  end
  return q, r
end

-- flow returns the time in microseconds in which a bucket with the rate P/Q refills
-- need units, if b/Q of a unit has refilled already.
local function flow(need, b, P, Q)
  local quo, rem = mul_add_div(need, Q, 0, P)
  if not quo then
    return FOREVER
  end
  local back = b - rem
  if back > 0 then
    return quo - floor(back / P)
  end
  return quo + floor((P - 1 - back) / P)
end

-- refill returns the level a + b/Q of a bucket after elapsed microseconds, as units and
-- a fraction. A level above the capacity, of later numbers, stays.
local function refill(a, b, elapsed, P, Q, capacity)
  if P == 0 then
    return a, b
  end
  local units, fraction = mul_add_div(elapsed, P, b, Q)
  if not units or units >= capacity - a then
    return a > capacity and a or capacity, 0
  end
  return a + units, fraction
end

-- fade returns how many units of the previous window still count if the time rest
-- remains in the current window.
local function fade(previous, rest, window)
  local weight = mul_add_div(previous, rest, 0, window)
  return weight
end
