package configuration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// An application is one call of Apply inside its transaction.
type application struct {
	service  *Service
	document Document
	options  Options
	now      time.Time
	existing *existing

	faults problem.Fields
	result Result
}

// run makes all changes. It first changes plans, then tenants, then exceptions, so that each object
// exists before other objects need it. After that, it deletes tenants and then plans. If a step
// finds faults in the document, run stops after this step, because these faults would cause further
// faults in the next steps.
func (a *application) run(ctx context.Context) (err error) {
	if a.existing, err = a.service.existing(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{a.plans, a.tenants, a.exceptions, a.pruneTenants, a.prunePlans} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := a.faults.Err(); err != nil {
			return err
		}
	}
	return nil
}

// note adds the invalid fields in err to the faults of the document and returns nil. In err, the
// pointers of the fields are relative to the pointer at. If err does not report invalid fields,
// note returns err.
func (a *application) note(at string, err error) error {
	if err == nil {
		return nil
	}
	faults, ok := under(at, err)
	if !ok {
		return fmt.Errorf("%s: %w", at, err)
	}
	a.faults = append(a.faults, faults...)
	return nil
}

// changed adds the change of an object to the result. from or to is nil if the object does not
// exist before or after the change.
func (a *application) changed(pointer string, from, to any) error {
	c, err := changeOf(pointer, from, to)
	a.result.Changes = append(a.result.Changes, c)
	return err
}

// extra adds to the result an existing object that the document does not contain. If Options.Prune
// is set, extra returns true, and the caller must delete the object.
func (a *application) extra(pointer string, from any) (bool, error) {
	c, err := changeOf(pointer, from, nil)
	if a.options.Prune {
		a.result.Changes = append(a.result.Changes, c)
	} else {
		a.result.Unmanaged = append(a.result.Unmanaged, c)
	}
	return a.options.Prune, err
}

// changeOf returns the change of the object at a pointer from one value to another. from is nil
// if the object does not exist yet, and to is nil if it is deleted.
func changeOf(pointer string, from, to any) (c plans.Change, err error) {
	c.Field = pointer
	encode := func(v any) (json.RawMessage, error) {
		if v == nil {
			return nil, nil
		}
		if d, ok := v.(described); ok {
			return d.JSON()
		}
		return enforcement.MarshalJSON(v)
	}
	if c.From, err = encode(from); err != nil {
		return c, err
	}
	c.To, err = encode(to)
	return c, err
}

// A described is a value that has its own JSON form in the list of changes (plans.Change).
type described interface {
	JSON() (json.RawMessage, error)
}

// plans creates the plans that do not exist yet, and publishes new versions of the plans that
// differ from the document.
func (a *application) plans(ctx context.Context) error {
	service := a.service.c.Plans
	for _, slug := range slices.Sorted(maps.Keys(a.document.Plans)) {
		at, want := "/plans/"+problem.Escape(slug), a.document.Plans[slug]
		now, exists := a.existing.plans[slug]
		if exists && now.Published > 0 {
			diff, err := plans.Compare(now.document, want)
			if err != nil {
				return err
			}
			if diff.Empty() {
				continue
			}
			list, err := diff.List()
			if err != nil {
				return err
			}
			if len(list) == 0 { // the versions have the same policies in another order
				list = []plans.Change{{Field: "/policies", From: json.RawMessage(`"another order"`), To: json.RawMessage(`"this order"`)}}
			}
			for _, c := range list {
				c.Field = at + c.Field
				a.result.Changes = append(a.result.Changes, c)
			}
		} else if err := a.changed(at, nil, want); err != nil {
			return err
		}
		if faults := service.Inspect(want).Faults; len(faults) > 0 {
			a.faults.AddAll(at, faults)
			continue
		}
		p, err := now.Plan, error(nil)
		switch {
		case !exists:
			p, err = service.CreatePlan(ctx, slug, want)
		case !now.Draft.Equal(want):
			p, err = service.SaveDraft(ctx, p.ID, want, p.DraftRevision)
		}
		if err == nil {
			_, _, err = service.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
		}
		if err := a.note(at, err); err != nil {
			return err
		}
	}
	return nil
}

// tenants creates the tenants that do not exist yet, and updates those that differ from the
// document.
func (a *application) tenants(ctx context.Context) error {
	service := a.service.c.Tenants
	for _, slug := range slices.Sorted(maps.Keys(a.document.Tenants)) {
		at, want := "/tenants/"+problem.Escape(slug), tenants.Normalise(a.document.Tenants[slug].Document)
		now, exists := a.existing.tenants[slug]
		if exists && now.Document == want {
			continue
		}
		is, err := describeTenant(want)
		if err != nil {
			return err
		}
		if exists {
			var list []plans.Change
			if list, err = tenantChanges(at, now.Document, want); err != nil {
				return err
			}
			a.result.Changes = append(a.result.Changes, list...)
			now, err = service.UpdateTenant(ctx, now.ID, want, now.Revision)
		} else {
			if err := a.changed(at, nil, is); err != nil {
				return err
			}
			now, err = service.CreateTenant(ctx, slug, want)
		}
		if err := a.note(at, err); err != nil {
			return err
		}
		a.existing.tenants[slug] = now
	}
	return nil
}

// exceptions changes the overrides and list entries of each tenant so that they equal those in the
// document. It skips the overrides or lists that the document does not manage.
func (a *application) exceptions(ctx context.Context) error {
	for _, slug := range slices.Sorted(maps.Keys(a.document.Tenants)) {
		at, want, now := "/tenants/"+problem.Escape(slug), a.document.Tenants[slug], a.existing.tenants[slug]
		if want.Overrides != nil {
			if err := a.overrides(ctx, at+"/overrides/", now, want.Overrides); err != nil {
				return err
			}
		}
		if want.Lists != nil {
			if err := a.lists(ctx, at+"/lists/", now, want.Lists); err != nil {
				return err
			}
		}
	}
	return nil
}

// overrides changes the overrides of a tenant so that they equal list. To change an override, it
// replaces the override by a new one.
//
// If several overrides apply to a key, the newest has precedence. In list, the last one has
// precedence. Therefore, after overrides has created an element of list, it also replaces each
// later element that may apply to the same key, so that the later element stays newer.
func (a *application) overrides(ctx context.Context, at string, t tenants.Tenant, list []exceptions.NewOverride) error {
	service, exist := a.service.c.Exceptions, a.existing.overrides[t.ID]
	byScope := make(map[scope][]int, len(exist))
	for j, o := range exist {
		byScope[scopeOf(overrideOf(o))] = append(byScope[scopeOf(overrideOf(o))], j)
	}
	var order, created newest
	var create []int // indexes of the elements of list to create
	state := make([]fate, len(exist))
	for n := range list {
		want := canonical(list[n])
		if !want.ExpiresAt.After(a.now) {
			a.result.Expired = append(a.result.Expired, at+strconv.Itoa(n))
			continue
		}
		keep := -1
		if created.overlapping(want) < 0 {
			for _, j := range byScope[scopeOf(want)] {
				if state[j] == unwanted && sameOverride(overrideOf(exist[j]), want) && j > order.overlapping(want) {
					keep = j
					break
				}
			}
		}
		if keep >= 0 {
			state[keep] = kept
			order.add(want, keep)
			continue
		}
		create = append(create, n)
		created.add(want, n)
	}
	for _, n := range create {
		for _, j := range byScope[scopeOf(canonical(list[n]))] {
			if state[j] == unwanted {
				state[j] = replaced
			}
		}
	}
	for j := range exist {
		if err := a.removeUnless(at+"-", state[j], describe(overrideOf(exist[j])), func() error {
			return service.DeleteOverride(ctx, t.ID, exist[j].ID)
		}); err != nil {
			return err
		}
	}
	for _, n := range create {
		_, err := service.CreateOverride(ctx, t.ID, list[n])
		if err := a.note(at+strconv.Itoa(n), err); err != nil {
			return err
		}
		if err := a.changed(at+"-", nil, describe(canonical(list[n]))); err != nil {
			return err
		}
	}
	return nil
}

// A fate says what apply does with an existing object.
type fate int

const (
	unwanted fate = iota // the document does not contain the object
	kept                 // the object equals the object in the document
	replaced             // a new object from the document replaces the object
)

// removeUnless deletes an existing object if its fate f is replaced. If f is unwanted, removeUnless
// reports the object, and deletes it if Options.Prune is set. pointer and is describe the object in
// the report.
func (a *application) removeUnless(pointer string, f fate, is any, remove func() error) error {
	switch f {
	case kept:
		return nil
	case replaced:
		if err := a.changed(pointer, is, nil); err != nil {
			return err
		}
		return remove()
	}
	prune, err := a.extra(pointer, is)
	if err != nil || !prune {
		return err
	}
	return remove()
}

// lists changes the list entries of a tenant so that they equal list.
func (a *application) lists(ctx context.Context, at string, t tenants.Tenant, list []exceptions.NewEntry) error {
	service, exist := a.service.c.Exceptions, a.existing.entries[t.ID]
	byValue := make(map[[3]string]int, len(exist))
	for j, e := range exist {
		byValue[valueOf(entryOf(e))] = j
	}
	state := make([]fate, len(exist))
	var create []int // indexes of the elements of list to create
	for n := range list {
		want := canonicalEntry(list[n])
		if !want.ExpiresAt.IsZero() && !want.ExpiresAt.After(a.now) {
			a.result.Expired = append(a.result.Expired, at+strconv.Itoa(n))
			continue
		}
		j, found := byValue[valueOf(want)]
		if found && sameEntry(entryOf(exist[j]), want) {
			state[j] = kept
			continue
		}
		if found {
			state[j] = replaced
		}
		create = append(create, n)
	}
	for j := range exist {
		if err := a.removeUnless(at+"-", state[j], describeEntry(entryOf(exist[j])), func() error {
			return service.DeleteEntry(ctx, t.ID, exist[j].ID)
		}); err != nil {
			return err
		}
	}
	for _, n := range create {
		_, err := service.CreateEntry(ctx, t.ID, list[n])
		if err := a.note(at+strconv.Itoa(n), err); err != nil {
			return err
		}
		if err := a.changed(at+"-", nil, describeEntry(canonicalEntry(list[n]))); err != nil {
			return err
		}
	}
	return nil
}

// pruneTenants reports the tenants that the document does not contain. With Options.Prune, it
// deletes them.
func (a *application) pruneTenants(ctx context.Context) error {
	if a.document.Tenants == nil {
		return nil
	}
	for _, slug := range slices.Sorted(maps.Keys(a.existing.tenants)) {
		if _, wanted := a.document.Tenants[slug]; wanted {
			continue
		}
		t, at := a.existing.tenants[slug], "/tenants/"+problem.Escape(slug)
		is, err := describeTenant(t.Document)
		if err != nil {
			return err
		}
		remove, err := a.extra(at, is)
		if err != nil {
			return err
		}
		if remove {
			if err := a.service.c.Tenants.DeleteTenant(ctx, t.ID, t.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}

// prunePlans reports the published plans that the document does not contain. With
// Options.Prune, it deletes them.
func (a *application) prunePlans(ctx context.Context) error {
	if a.document.Plans == nil {
		return nil
	}
	for _, slug := range slices.Sorted(maps.Keys(a.existing.plans)) {
		p, at := a.existing.plans[slug], "/plans/"+problem.Escape(slug)
		if _, wanted := a.document.Plans[slug]; wanted || p.Published == 0 {
			continue
		}
		remove, err := a.extra(at, map[string]string{"name": p.document.Name()})
		if err != nil {
			return err
		}
		if remove {
			err := a.service.c.Plans.DeletePlan(ctx, p.ID, p.Revision)
			if err := a.note(at, err); err != nil {
				return err
			}
		}
	}
	return nil
}
