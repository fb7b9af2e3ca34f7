package enforcement

// Overflow is the partition of all overflow counters. No other key has this partition,
// because the partition of a key is a hash, or zero for the whole tenant.
var Overflow = [16]byte{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}

// KeyRoom returns how many keys a limit of a tenant may have. bound is the maximum number of keys
// of the tenant, and others is the number of keys of its other limits. A limit with few keys may
// always have a 64th of the bound, until the tenant exceeds its bound by a quarter. So many keys of
// one limit do not deny new keys of the others. most is the number of keys of the limit with which
// the tenant exceeds its bound by a quarter. The numbers may also be bytes.
func KeyRoom(bound, others int64) (room, most int64) {
	most = max(bound+bound/4-others, 0)
	return max(bound-others, min(KeyReserve(bound), most)), most
}

// KeyReserve returns how many keys each limit of a tenant may have although the tenant has as many
// keys as it may have; see [KeyRoom].
func KeyReserve(bound int64) int64 { return bound / 64 }
