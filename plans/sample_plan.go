package plans

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// SampleSlug is the slug of the plan that the first start on SQLite creates.
const SampleSlug = "starter"

// Sample returns the document of the plan that the first start on SQLite creates. Its four policies
// use four different algorithms.
func Sample() Document {
	return New(Content{
		Name:        "Starter",
		Description: "A sample plan: sign-ins by address, API calls and searches by user, and a ceiling for the whole tenant.",
		Policies: []Policy{
			{
				Slug:        "login-per-ip",
				Description: "Slows down password guessing.",
				Match:       Match{Methods: []string{"POST"}, Path: "/v1/login"},
				CountBy:     []string{"ip"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}},
			},
			{
				Slug:        "api-per-user",
				Description: "Keeps one user from using up the API.",
				Match:       Match{Path: "/api/*"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 120, Window: time.Minute}},
			},
			{
				Slug:        "search-per-user",
				Description: "Searches are expensive: a steady rate, with a burst for search-as-you-type.",
				Match:       Match{Path: "/search"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 20}},
			},
			{
				Slug:        "tenant-total",
				Description: "The most calls of the whole tenant.",
				Limits:      []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 100_000, Window: time.Hour}},
			},
		},
	})
}
