package web

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web/views"
)

// Filters returns the filter form of a page. For each active filter, it has a chip, which is a
// link that removes the filter. get returns the value of a filter. address returns the address of
// the page with one filter changed; the value "" removes the filter. A field in faults shows its
// error and keeps the typed text.
func Filters(c echo.Context, action string, fields []views.FilterField, faults map[string]string, get func(name string) string,
	address func(name, value string) string,
) views.Filters {
	f := views.Filters{Action: action}
	for _, field := range fields {
		field.Value, field.Error = get(field.Name), faults[field.Name]
		if field.Error != "" {
			field.Value = c.QueryParam(field.Name)
		} else if field.Value != "" {
			chip := views.Chip{Name: field.Label, Value: field.Value, RemoveURL: address(field.Name, "")}
			for _, o := range field.Options {
				if o.Value == field.Value {
					chip.Value = o.Label
				}
			}
			if field.Check {
				chip.Value = "yes"
			}
			f.Chips = append(f.Chips, chip)
		}
		f.Fields = append(f.Fields, field)
	}
	return f
}
