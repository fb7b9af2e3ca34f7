package sharing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// A Filter selects links for a list, newest first. The zero value selects the newest 100 links.
type Filter struct {
	After string // ID of the last link of the previous page
	Limit int    // 0 means 100
}

// A Store stores links. tenantID is the ID of the owner, or "" for the operator. If a link has
// another owner, the error is problem.NotFound.
type Store interface {
	// SharedLinks lists the links of an owner that are valid at now, newest first.
	SharedLinks(ctx context.Context, tenantID string, now time.Time, f Filter) ([]Link, error)
	SharedLink(ctx context.Context, tenantID, id string) (Link, error)
	// CreateSharedLink adds a link. content is the snapshot of the page, or nil. A further error
	// is problem.Conflict with the code too_many_shared_links.
	CreateSharedLink(ctx context.Context, l Link, content []byte, e audit.Entry) (Link, error)
	DeleteSharedLink(ctx context.Context, tenantID, id string, e audit.Entry) error
	// OpenSharedLink returns the link with a hash if it is valid at now, and its content. It
	// records now as the time of the last use. Otherwise the error is problem.NotFound.
	OpenSharedLink(ctx context.Context, hash [32]byte, now time.Time) (Link, []byte, error)
}

// Config configures a Service.
type Config struct {
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Draw draws the page of a link that is not stored yet, with the rights of a viewer. For a
// snapshot it returns the content. For a display it returns nil: it only finds out whether the page
// can be drawn. The error is problem.Invalid if the page has no such parameters.
type Draw func(ctx context.Context, l Link) ([]byte, error)

// A Service creates, lists, revokes and opens links. It is safe for concurrent use.
type Service struct {
	store Store
	now   func() time.Time
	draw  map[Page]Draw // set by DrawnBy
}

// NewService returns a Service that stores links in s.
func NewService(s Store, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{s, cfg.Now, map[Page]Draw{}}
}

// DrawnBy sets the function that draws a page. The page group that serves the page calls it before
// the first call of Create. Create makes no snapshot of a page that no function draws.
func (s *Service) DrawnBy(p Page, draw Draw) { s.draw[p] = draw }

func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// Links lists the valid links of an owner, newest first.
func (s *Service) Links(ctx context.Context, tenantID string, f Filter) ([]Link, error) {
	return s.store.SharedLinks(ctx, tenantID, s.instant(), f)
}

// Link returns one link of an owner.
func (s *Service) Link(ctx context.Context, tenantID, id string) (Link, error) {
	return s.store.SharedLink(ctx, tenantID, id)
}

// Create adds a link and returns its token, which is not stored. If d.ExpiresAt is zero, the link gets
// the usual validity of its kind. Errors: problem.Invalid; problem.TooLarge; problem.Conflict with the
// code too_many_shared_links; those of the Draw of the page.
func (s *Service) Create(ctx context.Context, tenantID string, d Document) (Link, string, error) {
	now := s.instant()
	if d.ExpiresAt.IsZero() {
		d.ExpiresAt = now.Add(d.Kind.Usual())
	}
	d.ExpiresAt = d.ExpiresAt.UTC().Truncate(time.Second)
	var f problem.Fields
	if d.validate(&f, tenantID == "", now); f.Err() != nil {
		return Link{}, "", f.Err()
	}
	token, hash := newToken()
	l := Link{ID: audit.NewID(), TenantID: tenantID, Document: d, Hash: hash, CreatedAt: now}
	l.CreatedBy, _ = audit.Who(ctx)
	content, err := s.drawn(ctx, l)
	if err != nil {
		return Link{}, "", err
	}
	l, err = s.store.CreateSharedLink(ctx, l, content, entry(ctx, "shared_link.create", &l, nil, d))
	if err != nil {
		return Link{}, "", err
	}
	return l, token, nil
}

// drawn returns the content of a new link: nil for a display.
func (s *Service) drawn(ctx context.Context, l Link) ([]byte, error) {
	draw := s.draw[l.Page]
	if draw == nil && l.Kind == Snapshot {
		return nil, problem.New(problem.Unavailable, "this node does not draw the page %s: create a display", l.Page)
	}
	if draw == nil {
		return nil, nil
	}
	content, err := draw(ctx, l)
	if err == nil && len(content) > MaxContent {
		err = problem.New(problem.TooLarge, "the snapshot has more than %d KiB: choose a shorter time or a filter", MaxContent>>10)
	}
	return content, err
}

// Revoke deletes a link. Displays that are open end within seconds.
func (s *Service) Revoke(ctx context.Context, tenantID, id string) error {
	l, err := s.store.SharedLink(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return s.store.DeleteSharedLink(ctx, tenantID, id, entry(ctx, "shared_link.revoke", &l, l.Document, nil))
}

// errNoLink is the error for every token that does not work: an expired, a revoked or a forged
// one.
var errNoLink = problem.New(problem.NotFound, "this link has expired, was revoked, or never existed")

// Open returns the link to which a token belongs, and the content of a snapshot. The error is
// problem.NotFound if the link does not work. If the token is malformed, Open does not read the
// store.
func (s *Service) Open(ctx context.Context, token string) (Link, []byte, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != tokenBytes {
		return Link{}, nil, errNoLink
	}
	return s.open(ctx, sha256.Sum256([]byte(token)))
}

// Keep returns nil if a link that Open has returned is still valid. A page that stays open calls
// it. The error is problem.NotFound if the link has expired or was revoked.
func (s *Service) Keep(ctx context.Context, l Link) error {
	_, _, err := s.open(ctx, l.Hash)
	return err
}

func (s *Service) open(ctx context.Context, hash [32]byte) (Link, []byte, error) {
	l, content, err := s.store.OpenSharedLink(ctx, hash, s.instant())
	if problem.Is(err, problem.NotFound) {
		return Link{}, nil, errNoLink
	}
	return l, content, err
}

// tokenBytes is the number of random bytes in a token.
const tokenBytes = 32

func newToken() (string, [32]byte) {
	var raw [tokenBytes]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	token := base64.RawURLEncoding.EncodeToString(raw[:])
	return token, sha256.Sum256([]byte(token))
}

func entry(ctx context.Context, action string, l *Link, before, after any) audit.Entry {
	return audit.Complete(ctx, audit.Entry{TenantID: l.TenantID, Action: action, Object: l.ID, ObjectName: l.Name}, before, after)
}
