package views

import (
	"strings"

	"github.com/a-h/templ"
)

// A PlanList is the list of plans on one page.
type PlanList struct {
	List[PlanRow]
	Query    string
	MayWrite bool
}

// A PlanRow is one plan of the list.
type PlanRow struct {
	Name, Slug, URL string
	Published       string // "version 3", or ""
	Draft           string // how the draft differs from the published version
	Differs         bool
	Policies        int
	Tenants         Number
}

// NewPlan is the form of a new plan.
type NewPlan struct {
	Slug, Name Input
	From       Select
	Faults     []Fault
}

// A PlanHead has the data that all pages of a plan show at the top.
type PlanHead struct {
	Name, Slug, URL string
	Published       string // "version 3 in force", or ""
	Differs         bool   // the draft differs from the published version
	Tenants         string // "12 tenants"
	Tabs            []Tab
	MayWrite        bool
	Notice          string
}

// A PlanPage is the page about a plan. It shows the published version.
type PlanPage struct {
	PlanHead
	Description string
	Unpublished bool // no version is published: the page shows the draft
	Policies    []PolicyCard
	Shadow      bool // some policies are in shadow
	PreviewURL  string
	Delete      *DeletePlan // nil if the visitor must not delete the plan
}

// DeletePlan is the form that removes a plan.
type DeletePlan struct {
	URL, Revision string
	Confirm       Input
	Faults        []Fault
}

// A PolicyCard describes a policy in words.
type PolicyCard struct {
	ID, Slug, Description string
	Matches, CountedBy    string
	Limits                []LimitWords
	Mode                  ModeBadge
	Facts                 []Fact
	Replaces              []string
	EditURL               string // "" if the visitor must not edit
}

// A ModeBadge is the mode of a policy.
type ModeBadge struct{ Text, Tone, Title string }

// LimitWords describes a limit.
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
	Unsaved          bool // the form has changes that are not saved
	// Removed has the form fields of the policy that was deleted last, with which the visitor can restore
	// the policy. RemovedName is the slug of this policy, or "".
	Removed, RemovedName string
	TooLarge             string // why the form cannot show the draft, or ""
	JSONURL              string
	Algorithms           []Option
}

// PolicyFields has the form fields for one policy in the editor. ID is the prefix of the names of
// these fields.
type PolicyFields struct {
	ID, Was            string
	Number             string
	Title, Aloud       string
	Mode               ModeBadge
	Open, First        bool
	Error              string // error of the policy as a whole
	Slug               Input
	Description        Text
	Methods            Boxes
	OtherMethods, Path Input
	Attributes         []AttributeFields
	AttributesError    string
	CountBy            []Input
	CountByError       string
	ModeField          Select
	Delay              Input
	Cost, CostFrom     Input
	Choices            []Select // the other fields that have a fixed set of values
	Replaces           Boxes
	OtherReplaces      *Input // text field in place of check boxes, if there are too many policies
	Limits             []LimitFields
	LimitsError        string
}

// AttributeFields has the form fields for one attribute of match.
type AttributeFields struct{ Name, Value Input }

// LimitFields is a limit of the editor.
type LimitFields struct {
	ID, Number, Aloud          string
	Name, Quota, Window, Burst Input
	WarnAt, Rollover           Input
	Algorithm, Anchor, Durable Select
	CarryOver                  Select
}

// keepsPlaces reports whether the policies keep their order when the visitor presses the button do in
// the editor. In this case, the script leaves the same policies unfolded.
func keepsPlaces(do string) bool {
	return strings.Contains(do, ".add-") || strings.Contains(do, ".limits.")
}

// redraws returns the HTML attributes of a button that changes the form but does not save the draft.
// The server renders the changed form.
func redraws(action, at, do string) templ.Attributes {
	if do == "add-policy" { // adds only the new policy, because a plan can have a hundred; the script sends only their slugs
		return templ.Attributes{
			"id": "do-" + do, "formaction": action + at, "hx-post": action, "hx-target": "#" + do,
			"hx-vals": `{"do": "new-policy"}`, "hx-swap": "beforebegin show:none",
		}
	}
	return templ.Attributes{
		"id": "do-" + do, "formaction": action + at, "hx-post": action, "hx-target": "#draft", "hx-select": "#draft",
		"hx-swap": "outerHTML show:none", "data-keep-open": keepsPlaces(do),
	}
}

// Boxes is a group of check boxes.
type Boxes struct {
	ID, Label, Error, Hint string
	List                   []Box
}

// A Box is one check box. Name is also the HTML id of the box.
type Box struct {
	Name, Value string
	Checked     bool
}

func (b Boxes) formField() FormField { return FormField{Name: b.ID, Hint: b.Hint, Error: b.Error} }

// A DraftText is the editor for the JSON of a draft.
type DraftText struct {
	PlanHead
	Action, Revision string
	JSON             Text
	Faults           []Fault
	Unsaved          bool
}

// A Conflict is the page that shows two drafts: the visitor's draft, and the draft that another person
// has saved in the meantime. The visitor can merge the two.
type Conflict struct {
	PlanHead
	Who, Mine, Revision string // Mine as JSON
	When                Moment
	Action              string // where the draft is saved as JSON
	EditURL             string
	TheirChanges        *PlanDiff // nil if the version on which both edits are based is unknown
	MyChanges           *PlanDiff
	Apart               PlanDiff // from the stored draft to the visitor's
}

// A PlanDiff has the differences between two documents.
type PlanDiff struct {
	Empty    bool
	Rows     []DiffRow // differences of the plan itself
	Policies []DiffPolicy
	Order    bool // the order of the policies differs
	Counts   []DiffCount
	Lines    []DiffLine // all differences as JSON
}

// A DiffRow is one field that differs.
type DiffRow struct{ Field, From, To string }

// A DiffPolicy is a policy that was added, removed or changed.
type DiffPolicy struct {
	Slug, Kind string // "added", "removed", "changed"
	Tone       string
	Words      []string // describes an added or removed policy
	Rows       []DiffRow
}

// A DiffLine is a line of JSON with its sign, + or -.
type DiffLine struct{ Sign, Text string }

// A DiffCount says what happens to the counters of one limit if the document is published.
type DiffCount struct {
	Policy, Limit, Words string
	Tone                 string
}

// DiffPage shows the differences between the published version and the draft.
type DiffPage struct {
	PlanHead
	From, To string
	Diff     PlanDiff
	Warnings []Fault
	Faults   []Fault
}

// A PublishPage asks for confirmation before a draft or an earlier version is published.
type PublishPage struct {
	PlanHead
	Title, Lead, Action, Button string
	Hidden                      []Hidden
	Note                        Text
	Diff                        PlanDiff
	Warnings, Faults            []Fault
	Draft                       bool // the page publishes the draft, and not an earlier version
	Blocked                     bool // the document is invalid
	BackURL                     string
}

// A Rollout shows which nodes have loaded a revision.
type Rollout struct {
	PlanHead
	Version string
	Done    bool // all nodes have it
	Late    bool // a node does not have the revision, although it reported after the publication or should have
	Poll    bool // the page reloads itself
	Summary string
	Nodes   []RolloutNode
	Silent  string // number of nodes that do not report, or ""
	URL     string // of the page
}

// A RolloutNode is one node.
type RolloutNode struct {
	Name, State, Tone string
	Seen              Moment
}

// A History lists all publications of a plan.
type History struct {
	PlanHead
	Rows []Publication
	Next string
}

// A Publication is one publication of a version.
type Publication struct {
	Version, URL, By, Note string
	At                     Moment
	Current, Back          bool // in force now; published again
}

// A VersionPage is one version.
type VersionPage struct {
	PlanHead
	Version  string
	Current  bool
	By       string
	At       Moment
	Policies []PolicyCard
	Before   *PlanDiff // differences from the version before; nil for the first version
	BeforeNo string
	Draft    PlanDiff // from it to the draft
	Rollback string   // address that publishes the version again; "" if the visitor must not
	CopyURL  string   // address that copies the version to the draft; "" if the visitor must not
	Revision string   // of the draft
	Older    string
	Newer    string
}

// A PlanPreview shows how many requests the draft would have denied. The numbers are computed from
// recorded counts.
type PlanPreview struct {
	PlanHead
	Spans    []RangeLink
	Span     string // in words
	Notes    []string
	Tiles    []Tile
	Policies []PreviewPolicy
	Same     []PreviewPolicy // policies that the draft does not change, if it changes other policies
	Folded   string          // summary of Same
	InShadow []PreviewPolicy // policies that are published in mode shadow
	// Refused is the number of requests that the published version denied. RefusedRate is the percentage
	// of all requests that this is.
	Refused, RefusedRate Number
	Empty                bool
	// Replay compares traced requests. It is nil if there are none.
	Replay *PreviewReplay
}

// A PreviewReplay compares two decisions about traced requests: that of the published version, and
// that of the draft.
type PreviewReplay struct {
	Summary string
	Chart   Chart
}

// A PreviewPolicy has the number of requests that one policy denied, or would deny.
type PreviewPolicy struct {
	ID, Slug  string
	Change    string // "added", …; "" for the same
	Mode      ModeBadge
	Certainty ModeBadge
	Why       string
	Notes     []string
	Replayed  string // sentence about traced requests; "" if there are none
	Figures   []Figure
	ShadowURL string // address that puts the policy in mode shadow; "" if this is useless or the visitor must not
	Revision  string
}

// A Figure is the number of requests that a policy denied, or would deny, with bounds.
type Figure struct {
	Title   string
	Refused Number
	Rate    Number
	Bounds  string // "" when it is exact
	Tenants []FigureTenant
	Summary string // "14 tenants, 3 routes"
	Routes  []FigureRoute
	Keys    []FigureKey
}

// A FigureTenant has the number of one tenant in a Figure.
type FigureTenant struct {
	Name, URL, Note   string
	Refused, Requests Number
	Bounds            string
}

// A FigureRoute has the number of one route in a Figure.
type FigureRoute struct {
	Route, Note       string
	Refused, Requests Number
}

// A FigureKey has the number of one key in a Figure.
type FigureKey struct {
	Tenant, Key       string
	Refused, Requests Number
}
