// Package headgate is the client of Headgate, a service for quotas and rate limits. It
// uses only the standard library.
//
// A Client decides requests:
//
//	client, err := headgate.New(headgate.Config{URL: "http://127.0.0.1:8080", Token: token})
//	decision := client.Check(ctx, headgate.CheckRequest{
//		Tenant: "acme", Method: "POST", Path: "/v1/login",
//		Attributes: map[string]string{"ip": "203.0.113.9"},
//	})
//	if !decision.Allowed {
//		// answer decision.Status, with the headers of decision.SetHeaders
//	}
//
// Check always returns a decision. If Headgate does not decide within Config.Timeout,
// Config.OnUnreachable does, and Decision.Err has the cause. Middleware checks the
// requests of an http.Handler. The package manage has the management calls.
package headgate
