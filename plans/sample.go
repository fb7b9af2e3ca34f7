package plans

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// SampleSlug is the slug of the plan that the first start on SQLite makes.
const SampleSlug = "starter"

// Sample is that plan: four policies that show four algorithms.
func Sample() Document {
	return Normalise(Document{
		Name:        "Starter",
		Description: "A sample plan: sign-ins by address, API calls and searches by user, and a ceiling for the whole tenant.",
		Policies: []Policy{
			{
				Slug:        "login-per-ip",
				Description: "Slows down guessing of passwords.",
				Match:       Match{Methods: []string{"POST"}, Path: "/v1/login"},
				CountBy:     []string{"ip"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}},
			},
			{
				Slug:        "api-per-user",
				Description: "Keeps one user from taking the API for himself.",
				Match:       Match{Path: "/api/*"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 120, Window: time.Minute}},
			},
			{
				Slug:        "search-per-user",
				Description: "Searches are dear: a steady rate, with room for typing ahead.",
				Match:       Match{Path: "/search"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 20}},
			},
			{
				Slug:        "tenant-total",
				Description: "The most that the whole tenant may call.",
				Limits:      []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 100_000, Window: time.Hour}},
			},
		},
	})
}
