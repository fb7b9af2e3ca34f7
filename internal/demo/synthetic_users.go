package demo

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A population is the set of all synthetic users. It generates the requests of each second. The
// requests depend only on the seed and the second. Therefore the history is the same even if parts
// of it are computed separately.
type population struct {
	seed   uint64
	crowds []crowd
}

// A crowd is the set of synthetic users of one tenant.
type crowd struct {
	tenant string // slug
	// perSecond is the average number of requests per second of all users in the crowd
	// together.
	perSecond float64
	// zone is the difference between the users' local time and UTC, in hours. peak is the local
	// hour with the most requests.
	zone, peak float64
	swing      float64 // how much the rate varies over a day: with 0, the rate is constant; with 1, it drops to 0 at night
	weekend    float64 // factor for the rate on Saturday and Sunday
	burstOf    int     // number of requests that a page sends at the same time
	users      []user
	weights    []float64 // cumulative weights of users
	routes     []route
	shares     []float64 // cumulative weights of routes
	machines   []machine
}

type user struct {
	attributes []enforcement.Attribute
	ip         netip.Addr
}

type route struct {
	method string
	paths  []string
	weight float64
	// bursts says that a user sometimes loads a page that sends burstOf of these requests at
	// the same time.
	bursts bool
}

// A machine is a synthetic client, such as a batch job. Its rate does not depend on the time of
// day of the crowd.
type machine struct {
	user  user
	route route
	// rate returns the number of requests per second at the time at. age is the time from at to
	// the end of the history; for live traffic, it is 0.
	rate func(at time.Time, age time.Duration) float64
}

// An event is one synthetic request.
type event struct {
	at    int64 // time of the event in microseconds since the epoch
	crowd int
	check enforcement.Check
}

// density returns a factor for the average rate. It is low at the start of the history, so that
// the history is computed quickly. It rises to 1 during the last day, and to 2 during the last
// hour and in live traffic. age is the time to the end of the history.
func density(age time.Duration) float64 {
	const sparse, full, live = 0.22, 1, 2
	switch hours := age.Hours(); {
	case hours >= 24:
		return sparse
	case hours >= 1:
		near := (24 - hours) / 23
		return sparse + (full-sparse)*near*near
	default:
		return live - (live-full)*hours
	}
}

// second appends the requests of the second that starts at at to the list to, ordered by time.
// age is the time from at to the end of the history; for live traffic, it is 0.
func (w *population) second(to []event, at time.Time, age time.Duration) []event {
	from := len(to)
	second := at.Unix()
	for i := range w.crowds {
		c := &w.crowds[i]
		r := rand.New(rand.NewPCG(w.seed+uint64(i), uint64(second)))
		for range poisson(r, c.perSecond*c.rhythm(at)*density(age)) {
			to = c.ask(to, r, i, second)
		}
		for k := range c.machines {
			m := &c.machines[k]
			for range poisson(r, m.rate(at, age)) {
				to = append(to, event{at: instant(r, second), crowd: i, check: checkOf(&m.user, &m.route, r)})
			}
		}
	}
	slices.SortStableFunc(to[from:], func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return to
}

// ask appends the requests that one random user of the crowd sends at one time in the given
// second: one request, or all requests of a page. crowd is the index of c.
func (c *crowd) ask(to []event, r *rand.Rand, crowd int, second int64) []event {
	u := &c.users[pick(r, c.weights)]
	route := &c.routes[pick(r, c.shares)]
	at := instant(r, second)
	calls := 1
	if route.bursts && r.IntN(25) == 0 {
		calls = c.burstOf
	}
	for range calls {
		to = append(to, event{at: at, crowd: crowd, check: checkOf(u, route, r)})
	}
	return to
}

func instant(r *rand.Rand, second int64) int64 { return second*1_000_000 + r.Int64N(1_000_000) }

func checkOf(u *user, on *route, r *rand.Rand) enforcement.Check {
	return enforcement.Check{Method: on.method, Path: on.paths[r.IntN(len(on.paths))], Attributes: u.attributes, IP: u.ip, Cost: 1}
}

// rhythm returns how active the crowd is at a time, as a factor. The average of a weekday is 1.
func (c *crowd) rhythm(at time.Time) float64 {
	local := at.UTC().Add(time.Duration(c.zone * float64(time.Hour)))
	hour := float64(local.Hour()) + float64(local.Minute())/60
	f := 1 + c.swing*math.Cos((hour-c.peak)/24*2*math.Pi)
	if day := local.Weekday(); day == time.Saturday || day == time.Sunday {
		f *= c.weekend
	}
	return f
}

// poisson returns a random number from a Poisson distribution with the given mean. It uses
// Knuth's algorithm, which is fast for a small mean.
func poisson(r *rand.Rand, mean float64) (n int) {
	if mean <= 0 {
		return 0
	}
	for limit, p := math.Exp(-mean), r.Float64(); p > limit; p *= r.Float64() {
		n++
	}
	return n
}

// pick returns a random index of sums. sums contains the cumulative weights of the indexes.
func pick(r *rand.Rand, sums []float64) int {
	return min(sort.SearchFloat64s(sums, r.Float64()*sums[len(sums)-1]), len(sums)-1)
}

// newPopulation returns the synthetic users of all tenants.
func newPopulation(seed uint64) *population {
	w := &population{seed: seed, crowds: []crowd{acme(), bloom(), cobalt()}}
	for i := range w.crowds {
		c := &w.crowds[i]
		sum := 0.0
		for _, r := range c.routes {
			sum += r.weight
			c.shares = append(c.shares, sum)
		}
		sum = 0
		for rank := range c.users {
			sum += 1 / math.Pow(float64(rank+1), 1.05) // Zipf distribution: a few users send most requests
			c.weights = append(c.weights, sum)
		}
	}
	return w
}

func acme() crowd {
	return crowd{
		tenant: tenantAcme, perSecond: 2.5, zone: 1, peak: 14, swing: 0.75, weekend: 0.4, burstOf: 9,
		users: people(340, func(i int) string {
			if i%3 == 0 {
				return fmt.Sprintf("2001:db8:%x:%x::%x", 0x10+i%7, i%5, i+1)
			}
			return fmt.Sprintf("192.0.2.%d", 10+i%60)
		}, nil),
		routes: []route{
			{"GET", paths("/v1/orders/%d", 40), 26, true},
			{"GET", paths("/v1/customers/%d", 40), 20, true},
			{"GET", []string{"/v1/reports/revenue", "/v1/reports/stock", "/v1/reports/returns", "/v1/reports/daily"}, 22, false},
			{"GET", []string{"/v1/search"}, 14, false},
			{"POST", []string{"/v1/orders"}, 8, false},
			{"POST", []string{"/v1/exports/orders", "/v1/exports/stock"}, 3, false},
			{"POST", []string{"/v1/login"}, 4, false},
			{"GET", []string{"/status"}, 3, false},
		},
		machines: []machine{
			// A batch job starts five minutes after every hour.
			{someone(batchUser, "192.0.2.5"), route{"POST", []string{"/v1/exports/orders"}, 0, false}, minutes(1.6, 5)},
			{someone(qaUser, "192.0.2.6"), route{"GET", []string{"/v1/reports/revenue", "/v1/search", "/v1/orders/7"}, 0, false}, always(0.08)},
		},
	}
}

func bloom() crowd {
	return crowd{
		tenant: tenantBloom, perSecond: 1.6, zone: -5, peak: 20, swing: 0.7, weekend: 1.3, burstOf: 12,
		users: people(220, func(i int) string { return fmt.Sprintf("203.0.113.%d", 70+i%110) }, func(i int) string {
			if i%9 == 4 {
				return "beta"
			}
			return ""
		}, heavyUser, betaUser),
		routes: []route{
			{"GET", paths("/v1/products/%d", 60), 38, true},
			{"GET", []string{"/v1/search"}, 20, false},
			{"GET", paths("/v1/carts/%d", 30), 14, true},
			{"GET", []string{"/v1/beta/recommendations", "/v1/beta/try-on"}, 10, true},
			{"POST", []string{"/v1/carts"}, 8, false},
			{"POST", []string{"/v1/login"}, 6, false},
			{"GET", []string{"/robots.txt"}, 2, false},
		},
		machines: []machine{
			// An attacker guesses passwords from one address, in two of every ten minutes.
			{someone("", abuserIP), route{"POST", []string{"/v1/login"}, 0, false}, attacks(0.8)},
			// One user comes close to the monthly quota. The rate is the same in every week.
			{someone(heavyUser, "203.0.113.71"), route{"POST", []string{"/v1/orders"}, 0, false}, always(0.00305)},
			{someone("", deniedIP), route{"POST", []string{"/v1/orders"}, 0, false}, always(0.005)},
			// A client reads the product feed far too often, in two of every ten minutes.
			{someone("", readerIP), route{"GET", []string{"/feeds/products.xml"}, 0, false}, attacks(0.5)},
		},
	}
}

func cobalt() crowd {
	return crowd{
		tenant: tenantCobalt, perSecond: 0.5, zone: 0, peak: 16, swing: 0.6, weekend: 0.8, burstOf: 11,
		users: people(28, func(i int) string { return fmt.Sprintf("192.0.2.%d", 100+i) }, nil),
		routes: []route{
			{"GET", paths("/v1/items/%d", 20), 45, true},
			{"GET", []string{"/v1/search"}, 20, false},
			{"POST", []string{"/v1/items"}, 10, false},
			{"POST", []string{"/v1/login"}, 5, false},
			{"GET", []string{"/docs"}, 6, false},
		},
		machines: []machine{
			{someone(blockedUser, "192.0.2.180"), route{"GET", paths("/v1/items/%d", 20), 0, false}, always(0.06)},
		},
	}
}

// always returns a rate function with a constant rate.
func always(perSecond float64) func(time.Time, time.Duration) float64 {
	return func(time.Time, time.Duration) float64 { return perSecond }
}

// minutes returns a rate function that is above 0 in only one minute of every hour.
func minutes(perSecond float64, minute int) func(time.Time, time.Duration) float64 {
	return func(at time.Time, _ time.Duration) float64 {
		if at.Minute() != minute {
			return 0
		}
		return perSecond
	}
}

// attacks returns a rate function that is above 0 in only two of every ten minutes, and only in
// some hours: some hours of the history, its last two hours, and all of live traffic.
func attacks(perSecond float64) func(time.Time, time.Duration) float64 {
	return func(at time.Time, age time.Duration) float64 {
		hour := at.Unix() / 3600
		if m := at.Minute() % 10; m < 2 || m > 3 || age > 2*time.Hour && hour*2654435761%7 > 1 {
			return 0
		}
		return perSecond
	}
}

var (
	firstNames = []string{
		"ada", "ben", "cleo", "dina", "emil", "fay", "gus", "hana", "ivo", "juno", "kai", "lena", "milo", "nora", "otto",
		"pia", "quin", "rosa", "sven", "tara",
	}
	lastNames = []string{
		"abara", "berg", "castro", "dahl", "eriksen", "fontaine", "grau", "haas", "iqbal", "jensen", "koch", "lund",
		"moreau", "novak", "okafor", "petit", "quist",
	}
)

// people returns n users. ip returns the IP address of the user with index i, and tier the tier
// or "". The first users have the names in named, the others generated names.
func people(n int, ip func(i int) string, tier func(i int) string, named ...string) []user {
	list := make([]user, n)
	for i := range list {
		name := firstNames[i%len(firstNames)] + "." + lastNames[i%len(lastNames)]
		if i < len(named) {
			name = named[i]
		}
		list[i] = someone(name, ip(i))
		if tier != nil && tier(i) != "" {
			list[i].attributes = append(list[i].attributes, enforcement.Attribute{Name: "tier", Value: tier(i)})
		}
	}
	return list
}

// someone returns a user with an IP address and, unless name is "", a name.
func someone(name, ip string) user {
	u := user{ip: netip.MustParseAddr(ip)}
	if name != "" {
		u.attributes = append(u.attributes, enforcement.Attribute{Name: "user", Value: name})
	}
	u.attributes = append(u.attributes, enforcement.Attribute{Name: "ip", Value: u.ip.String()})
	return u
}

func paths(form string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(form, 1000+i*37%997)
	}
	return list
}
