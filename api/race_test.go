//go:build race

package api_test

// The pools of the race detector drop objects at random.
const raced = true
