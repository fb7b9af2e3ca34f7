package admission

import "testing"

// A party has a bound below that of the node, one body of any size is allowed, and what is returned
// can be used again.
func TestBodies(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	var b Bodies
	for i := range int(MaxBodiesEach / mega) {
		if !b.Take("acme", 0, mega) {
			t.Fatalf("body %d of a tenant is rejected", i)
		}
	}
	if b.Take("acme", 0, 1) {
		t.Error("a tenant has more than its part")
	}
	if !b.Take("import", 0, MaxBodiesEach) || !b.Take("import", MaxBodiesEach, MaxBodiesEach) {
		t.Error("one body larger than the part of a party is rejected")
	}
	if b.Take("import", 0, 1) {
		t.Error("a second body is allowed beside one that is larger than the part of a party")
	}
	if !b.Take("globex", 0, MaxBodiesEach) || b.Take("initech", 0, 1) {
		t.Error("the node does not have exactly its bound")
	}
	b.Give("acme", mega)
	if !b.Take("initech", 0, mega) {
		t.Error("returned bytes cannot be used")
	}
	for party, n := range map[string]int64{"acme": MaxBodiesEach - mega, "import": 2 * MaxBodiesEach, "globex": MaxBodiesEach, "initech": mega} {
		b.Give(party, n)
	}
	if b.Held() != 0 || len(b.of) != 0 {
		t.Errorf("%d bytes are still reserved: %v", b.Held(), b.of)
	}
}
