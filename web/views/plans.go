package views

import (
	"strings"

	"github.com/a-h/templ"
)

// A PlanList is all plans.
type PlanList struct {
	List[PlanRow]
	Query    string
	MayWrite bool
}

// A PlanRow is one of them.
type PlanRow struct {
	Name, Slug, URL string
	Published       string // "version 3", "" when nothing is
	Draft           string // how the draft stands to it, in words
	Differs         bool
	Policies        int
	Tenants         Number
}

// NewPlan is the form that makes one.
type NewPlan struct {
	Slug, Name Input
	From       Select
	Faults     []Fault
}

// A PlanHead is what every page of a plan begins with.
type PlanHead struct {
	Name, Slug, URL string
	Published       string // in words
	Differs         bool   // the draft
	Tenants         string // "12 tenants"
	Tabs            []Tab
	MayWrite        bool
	Notice          string
}

// A PlanPage is the published version as a person reads it.
type PlanPage struct {
	PlanHead
	Description string
	Unpublished bool // it shows the draft, as nothing is published
	Policies    []PolicyCard
	Shadow      bool // some are in shadow
	PreviewURL  string
	Delete      *DeletePlan // nil when it cannot be, or not by this visitor
}

// DeletePlan is the form that removes a plan.
type DeletePlan struct {
	URL, Revision string
	Confirm       Input
	Faults        []Fault
}

// A PolicyCard is a policy in words.
type PolicyCard struct {
	ID, Slug, Description string
	Matches, CountedBy    string
	Limits                []LimitWords
	Mode                  ModeBadge
	Facts                 []Fact
	Replaces              []string
	EditURL               string // "" when the visitor may not
}

// A ModeBadge is a policy's mode; Tone is the badge's.
type ModeBadge struct{ Text, Tone, Title string }

// LimitWords is a limit read aloud.
type LimitWords struct{ Name, Words, Algorithm string }

// A DraftForm is the editor.
type DraftForm struct {
	PlanHead
	Action, Revision string
	Name             Input
	Description      Text
	Policies         []PolicyFields
	Faults           []Fault
	Warnings         []Fault
	Unsaved          bool   // what is shown is not what is saved
	Focus            string // the field that comes next
	TooLarge         string // why the form cannot show the draft; "" when it can
	JSONURL          string
	Algorithms       []Option
}

// PolicyFields is a policy of the editor. ID is the prefix of its fields.
type PolicyFields struct {
	ID, Was            string
	Number             string
	Title, Aloud       string
	Mode               ModeBadge
	Open, First, Last  bool
	Error              string // of the policy as a whole
	Slug               Input
	Description        Text
	Methods            Boxes
	OtherMethods, Path Input
	Attributes         []AttributeFields
	AttributesError    string
	CountBy            []Input
	CountByError       string
	ModeField          Select
	Choices            []Select // the other fields with a fixed set of values
	Replaces           Boxes
	OtherReplaces      *Input // instead of boxes where there would be too many
	Limits             []LimitFields
	LimitsError        string
}

// AttributeFields is one row of the attributes that must be there.
type AttributeFields struct{ Name, Value Input }

// LimitFields is a limit of the editor.
type LimitFields struct {
	ID, Number, Aloud          string
	Name, Quota, Window, Burst Input
	Algorithm, Anchor          Select
}

// keepsPlaces reports whether a button of the editor leaves each policy where it
// is, so that the script can leave open what was.
func keepsPlaces(do string) bool {
	return do == "add-policy" || strings.Contains(do, ".add-") || strings.Contains(do, ".limits.")
}

// redraws are the attributes of a button that redraws the form.
func redraws(action, at, do string) templ.Attributes {
	return templ.Attributes{
		"id": "do-" + do, "formaction": action + at, "hx-post": action, "hx-target": "#draft", "hx-select": "#draft",
		"hx-swap": "outerHTML show:none", "data-keep-open": keepsPlaces(do),
	}
}

// Boxes is a group of boxes to tick.
type Boxes struct {
	ID, Label, Error, Hint string
	List                   []Box
}

// A Box is one of them; Name is its id too.
type Box struct {
	Name, Value string
	Checked     bool
}

func (b Boxes) formField() FormField { return FormField{Name: b.ID, Hint: b.Hint, Error: b.Error} }

// A DraftText is the editor of the JSON.
type DraftText struct {
	PlanHead
	Action, Revision, FormURL string
	JSON                      Text
	Faults                    []Fault
	Unsaved                   bool
}

// A Conflict is two people's drafts.
type Conflict struct {
	PlanHead
	Who, Mine, Revision string // Mine as JSON
	When                Moment
	Action              string // of saving it as JSON
	EditURL             string
	TheirChanges        *PlanDiff // nil when it is not known what both began with
	MyChanges           *PlanDiff
	Apart               PlanDiff // from theirs to mine
}

// A PlanDiff is what one document has that another has not.
type PlanDiff struct {
	ID       string // prefix of its ids
	Empty    bool
	Rows     []DiffRow // of the plan itself
	Policies []DiffPolicy
	Order    bool // the policies stand in another order
	Counts   []DiffCount
	Lines    []DiffLine // all of it as JSON
}

// A DiffRow is one field that differs, in words.
type DiffRow struct{ Field, From, To string }

// A DiffPolicy is a policy that was added, removed or changed.
type DiffPolicy struct {
	Slug, Kind string // "added", "removed", "changed"
	Tone       string
	Words      []string // what it does, of an added or removed one
	Rows       []DiffRow
}

// A DiffLine is a line of JSON with its sign.
type DiffLine struct{ Sign, Text string }

// A DiffCount is what becomes of a limit's counts.
type DiffCount struct {
	Policy, Limit, Words string
	Tone                 string
}

// DiffPage is the draft against what is published.
type DiffPage struct {
	PlanHead
	From, To string
	Diff     PlanDiff
	Warnings []Fault
	Faults   []Fault
}

// A PublishPage asks whether it is meant.
type PublishPage struct {
	PlanHead
	Title, Lead, Action, Button string
	Hidden                      []Hidden
	Note                        Text
	Diff                        PlanDiff
	Warnings, Faults            []Fault
	Blocked                     bool // it would be refused
	BackURL                     string
}

// A Rollout is on which nodes a revision is in force.
type Rollout struct {
	PlanHead
	Version  string
	Done     bool // all nodes have it
	Poll     bool // the page asks again by itself
	Summary  string
	Nodes    []RolloutNode
	Silent   string // how many are not counted, in words; "" without any
	URL      string // of itself
	AuditURL string
}

// A RolloutNode is one of them.
type RolloutNode struct {
	Name, State, Tone string
	Seen              Moment
}

// A History is every publication of a plan.
type History struct {
	PlanHead
	Rows []Publication
	Next string
}

// A Publication is one time at which a version came into force.
type Publication struct {
	Version, URL, By, Note string
	At                     Moment
	Current, Back          bool // in force now; went back to a version from before
}

// A VersionPage is one version.
type VersionPage struct {
	PlanHead
	Version   string
	Current   bool
	By        string
	At        Moment
	Name      string
	Policies  []PolicyCard
	Before    *PlanDiff // to the version before; nil for the first
	BeforeNo  string
	Draft     PlanDiff // from it to the draft
	Rollback  string   // where it is published again; "" when it may not be
	CopyURL   string   // where it becomes the draft; "" when it may not, or is
	Revision  string   // of the draft
	Older     string
	Newer     string
	Published string
}

// A PlanPreview is the draft held against what was counted.
type PlanPreview struct {
	PlanHead
	Spans    []RangeLink
	Span     string // in words
	Notes    []string
	Tiles    []Tile
	Policies []PreviewPolicy
	InShadow []PreviewPolicy // those that are published in shadow
	// Refused by what is published, and its part of all requests.
	Refused, RefusedRate Number
	Empty                bool
}

// A PreviewPolicy is what was and would be refused by one policy.
type PreviewPolicy struct {
	ID, Slug  string
	Change    string // "added", …; "" for the same
	Mode      ModeBadge
	Certainty ModeBadge
	Why       string
	Notes     []string
	Requests  Number
	Figures   []Figure
	ShadowURL string // where it is put in shadow; "" when that is no use or not allowed
	Revision  string
	Limits    []LimitWords
}

// A Figure is what a policy refused, or would refuse.
type Figure struct {
	ID      string
	Title   string
	Refused Number
	Rate    Number
	Bounds  string // "" when it is exact
	Tenants []FigureTenant
	Summary string // "14 tenants, 3 routes"
	Routes  []FigureRoute
	Keys    []FigureKey
	None    bool
}

// FigureTenant is a tenant's part of it.
type FigureTenant struct {
	Name, URL, Note   string
	Refused, Requests Number
	Bounds            string
}

// FigureRoute is a route's part of it.
type FigureRoute struct {
	Route, Note       string
	Refused, Requests Number
}

// FigureKey is a key's part of it.
type FigureKey struct {
	Tenant, Key       string
	Refused, Requests Number
}
