-- Plain cells: what all scripts have in common. This text stands first in each.
-- A line "-- include: name" stands for the text of that file: a function would
-- cost more than what it does.
--
-- A plain value is u1 1, rev i6, a i7, b i7, t i7: 28 bytes, the most that one
-- allocation of 48 holds.
--
-- A parameter is 62 bytes: algorithm u1 (1 fixed window, 2 log, 3 sliding
-- counter, 4 bucket), rev of the caller i8, then of a bucket capacity i8, P i8,
-- Q i8, and of the others quota i8, window i8, clock anchor i8; then, of all,
-- rev of the numbers i8, quota i8, window i8, number of formers u1 and where
-- they begin u4, counted from 1. A former is rev i8, until i8, capacity i8, P
-- i8, Q i8.
--
-- The expiry of a key is at least a second after the end of its value. Two kinds
-- of values may be changed in place, which does not move the expiry: the count
-- of a window, whose expiry follows from where the window begins; and a bucket
-- with a fraction. Time is divided into quarters of the time that the bucket
-- takes to fill. A bucket with a fraction is kept until it would be full if it
-- were emptied at the end of its quarter, so it may be changed in place within
-- that quarter. A bucket without a fraction, as the first charge leaves it, is
-- kept for as long as it needs to fill.

local read, pack, call = struct.unpack, struct.pack, redis.call

local FIXED, COUNTER, BUCKET = 1, 3, 4
local MAX_COUNT = 1000000000000000
local PLAIN_FORM = '<Bi6i7i7i7'
