package web

import "slices"

// operationsRoutes are the pages of those who run Headgate.
func (w *Web) operationsRoutes() []row {
	return slices.Concat(w.auditRoutes(), w.systemRoutes(), w.operatorSettingsRoutes())
}
