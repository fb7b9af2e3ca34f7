package api

import (
	"context"

	"github.com/headgate/headgate/internal/nodes"
)

// GetNodes is GET /v1/nodes.
func (a *API) GetNodes(ctx context.Context, _ GetNodesRequestObject) (GetNodesResponseObject, error) {
	o, err := a.cfg.Nodes.Overview(ctx)
	if err != nil {
		return nil, err
	}
	out := Nodes{At: Instant{o.At}, Revision: o.Revision, Nodes: make([]Node, len(o.Nodes))}
	for i := range o.Nodes {
		if out.Nodes[i], err = showNode(&o.Nodes[i]); err != nil {
			return nil, err
		}
	}
	return GetNodes200JSONResponse(out), nil
}

// showNode returns the report of a node in its wire format.
func showNode(r *nodes.Report) (Node, error) {
	id, err := parseUUID(r.ID)
	if err != nil {
		return Node{}, err
	}
	out := Node{
		Id: id, Name: r.Name, Level: NodeLevel(r.Level().String()), Silent: r.Silent, Draining: r.Draining, SeenAt: Instant{r.SeenAt},
		Warnings: make([]NodeWarning, len(r.Verdicts)),
	}
	for i, v := range r.Verdicts {
		out.Warnings[i] = NodeWarning{Level: NodeWarningLevel(v.Level.String()), Code: v.Code, Text: v.Text}
	}
	if r.Unreadable {
		return out, nil
	}
	out.Version, out.GoVersion, out.StartedAt, out.Revision = r.Version, r.GoVersion, Instant{r.StartedAt}, r.Snapshot.Revision
	out.Limiter = NodeLimiterRedis
	if r.Limiter == nodes.LimiterInProcess {
		out.Limiter = NodeLimiterInProcess
	}
	return out, nil
}
