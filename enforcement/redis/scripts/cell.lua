-- Plain cells: the constants and the formats that all scripts share. A cell is one
-- counter; a plain cell is a counter without a log. This text is the first part of each
-- script. A line that begins with "include:" after the comment sign is replaced by the
-- text of a file. A function instead would cost more time than the work that it does.
--
-- A plain value has 28 bytes: u1 1, rev i6, a i7, b i7, t i7. More bytes would not fit
-- into the allocation of 48 bytes that Redis makes for such a value.
--
-- A parameter has the numbers of a limit in 62 bytes. It begins with: algorithm u1 (1
-- fixed window, 2 log, 3 sliding counter, 4 bucket, 5 calendar window, 7 leaky bucket, 8 grant),
-- revision of the caller i8. For a bucket follow burst i8, P i8, Q i8. For a calendar window follow
-- minus the largest number of units that roll over i8, which is not above 0, so that only settle.lua
-- settles it, and the starts of two windows i8, i8; the end of
-- the second one takes the place of the revision of the numbers. A grant has the form of a
-- calendar window: its start, its end, and its end again; its quota is its units. For the others follow
-- quota i8, window i8, clock anchor i8. At the end are, for all: revision of the numbers i8, quota i8,
-- window i8, number of former numbers u1, their position u4, from 1. Former numbers are
-- rev i8, until i8, then for a bucket capacity i8, P i8, Q i8, and for the others quota i8,
-- window i8, 0 i8; and at the end the carry-over to the next numbers u1 (0 keep, 1 reset, 2
-- proportional, 3 additive). The others have former numbers only if the revision of the
-- caller is that of the numbers.
--
-- A key expires at least a second after its value has no more effect. Two kinds of
-- values can be changed in place (SETRANGE), which does not change the expiry. The
-- first is the count of a window, because its expiry depends only on the start of the
-- window. The second is a bucket with a fraction of a unit. Time is divided into
-- quarters of the time in which the bucket fills. A bucket with a fraction expires when
-- it would be full if it were emptied at the end of its quarter. Therefore it can be
-- changed in place within that quarter. A bucket without a fraction, for example after
-- its first charge, expires when it is full.
--
-- A token bucket is full at its burst, and empty at 0. A leaky bucket is as if unused at 0, and
-- has no room at minus its burst. settle.lua treats it as a bucket that is full at x = 0, of
-- which room = burst more units can be charged than it has.

local read, pack, call = struct.unpack, struct.pack, redis.call

local FIXED, COUNTER, BUCKET, CALENDAR, LEAKY, GRANT = 1, 3, 4, 5, 7, 8
local MAX_COUNT = 1000000000000000
local PLAIN_FORM = '<Bi6i7i7i7'
local RECORD_FORM, RECORD_LIFE = '<i8i8I2', 600000 -- of the numbers of a record; milliseconds
