package enforcement

// Overflow is the partition of all overflow counters. No other key has this partition,
// because the partition of a key is a hash, or zero for the whole tenant.
var Overflow = [16]byte{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}

// KeyRoom returns how many keys one limit of a tenant may have. bound is the maximum number of keys
// of the tenant, and others is the number of keys of its other limits. The numbers may also be
// bytes.
//
// Each limit may have at least a 64th of bound, even if the tenant already has bound keys, as long
// as the tenant does not exceed bound by more than a quarter. Therefore, if one limit has many
// keys, other limits can still get new keys. most is the number of keys of this limit with which
// the tenant reaches bound plus a quarter.
func KeyRoom(bound, others int64) (room, most int64) {
	most = max(bound+bound/4-others, 0)
	return max(bound-others, min(KeyReserve(bound), most)), most
}

// KeyReserve returns how many keys each limit of a tenant may always have, even if the tenant
// already has its maximum number of keys; see [KeyRoom].
func KeyReserve(bound int64) int64 { return bound / 64 }
